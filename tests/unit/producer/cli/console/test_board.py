"""The board: what it keeps of each look, and of one that fails."""

import threading

import pytest

from tests.unit.producer.cli.console.conftest import NOT_STARTED, RUNNING
from tidegate.producer.cli.console import board as module
from tidegate.producer.cli.console.board import Board, consumer_figures
from tidegate.producer.cli.console.config import ConsoleConfig
from tidegate.schemas.errors import UnreachableError
from tidegate.spark_consumer.metrics import consumer_metrics


class Looks:
    """Statuses and faults, in turn; the last one stops the board."""

    def __init__(self, *looks):
        self.looks, self.stopping = list(looks), threading.Event()

    def __call__(self, *, on_records):
        while self.looks:
            look = self.looks.pop(0)
            if not self.looks:
                self.stopping.set()
            if isinstance(look, Exception):
                raise look
            yield look

    def run(self, **settings):
        board = Board(ConsoleConfig(**settings), self)
        board.run(self.stopping)
        return board


def test_the_newest_status_is_shown_with_its_history():
    board = Looks(NOT_STARTED, RUNNING, RUNNING).run()
    assert board.status is RUNNING
    assert len(board.history.samples) == 2
    assert board.history.samples[-1].lag_s == 3.0


def test_a_look_that_fails_keeps_what_was_found_and_is_repeated(monkeypatch):
    monkeypatch.setattr(module, "_AGAIN_S", 0.0)
    board = Looks(RUNNING, UnreachableError("no broker")).run()
    assert (board.status, board.fault) == (RUNNING, "no broker")
    again = Looks(RUNNING, UnreachableError("no broker"), RUNNING).run()
    assert again.fault == ""


def test_an_output_that_cannot_be_read_does_not_hide_the_stream(tmp_path):
    manifests = tmp_path / "_releases"
    manifests.mkdir()
    (manifests / "000000000000.json").write_text("{")
    board = Looks(RUNNING).run(output=str(tmp_path))
    assert board.status is RUNNING
    assert "not JSON" in board.output_fault


def test_a_consumer_that_does_not_answer_is_named():
    board = Looks(RUNNING).run(consumer_metrics="127.0.0.1:1")
    assert "consumer_metrics: 127.0.0.1:1 does not answer" in board.output_fault


class Place:
    """A store in which every read fails."""

    def refresh(self):
        raise OSError(5, "Input/output error")

    read = refresh


@pytest.mark.parametrize(("field", "setting"), [("_reader", "output"), ("_audit_file", "audit")])
def test_a_place_that_cannot_be_read_is_named(field, setting, tmp_path):
    looks = Looks(RUNNING)
    board = Board(ConsoleConfig(output=str(tmp_path), audit=str(tmp_path / "audit")), looks)
    setattr(board, field, Place())
    board.run(looks.stopping)
    assert board.output_fault == f"{setting}: cannot be read: [Errno 5] Input/output error"


@pytest.mark.parametrize(
    "page",
    [
        "tidegate_consumer_commit_to_release_seconds_bucket 1",
        'tidegate_consumer_sink_release{sink="a"} +Inf',
        'tidegate_consumer_sink_release{sink="a"} NaN',
        "<html>",
    ],
)
def test_a_page_that_is_not_a_consumers_is_refused(page):
    with pytest.raises(ValueError, match=r"^(another program|invalid metric|cannot convert)"):
        consumer_figures(page)


def test_a_consumers_page_has_delays_and_sinks():
    metrics = consumer_metrics()
    for seconds in (0.2, 0.3, 4_000.0):
        metrics.observe("commit_to_release_seconds", seconds)
    metrics.set("sink_release", 7, sink="changelog")
    metrics.add("sink_releases_total", 2, sink="changelog")
    metrics.add("sink_changes_total", 11, sink="changelog")
    metrics.add("sink_seconds_total", 3.0, sink="changelog")
    metrics.set("sink_release", 5, sink="mirror")
    from prometheus_client import generate_latest

    figures = consumer_figures(generate_latest(metrics.registry).decode())
    assert [pair for pair in figures.delays if pair[1]] == [
        ("0.25 s", 1.0), ("0.5 s", 1.0), ("more", 1.0),
    ]  # fmt: skip
    changelog, mirror = figures.sinks
    assert (changelog.release, changelog.releases, changelog.changes, changelog.seconds) == (
        7, 2, 11, 3.0,
    )  # fmt: skip
    assert (mirror.sink, mirror.release, mirror.releases) == ("mirror", 5, 0)
