"""What the writer puts into files, step by step, and what it says of it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tidegate.local_stack.demo.bank import FilesOf
from tidegate.local_stack.demo.files import writer as module
from tidegate.local_stack.demo.files.source_bank import SourceBank
from tidegate.local_stack.demo.files.writer import FilesWriter
from tidegate.local_stack.errors import PartFailedError
from tidegate.producer.datastream.event_file import EventFile
from tidegate.producer.datastream.read_methods import ReadKind

BEGAN_S = 1_700_000_000.0


class Clock:
    """Time as the writer's steps see it; also when files were written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = BEGAN_S
        monkeypatch.setattr(module.time, "time_ns", lambda: int(self.now_s * 1_000) * 1_000_000)

    def steps(self, made: FilesWriter, until: Any) -> None:
        for _ in range(5_000):
            if until():
                return
            made.step(now_s=self.now_s)
            self.now_s += 0.1
        raise AssertionError


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def make(folder: Path, **settings: Any) -> FilesWriter:
    location = folder / "files"
    location.mkdir(exist_ok=True)
    bank = SourceBank(accounts=9, rows=20, seed=2, opened_us=int(BEGAN_S) * 1_000_000)
    given = {
        "location": location, "source": "mysql", "bank": bank, "transfers": 120, "rate_max": 20.0,
        "pause_at": 12, "seed": 2, "hold_s": 20.0, "in_time_s": 8.0,
    }  # fmt: skip
    return FilesWriter(**{**given, **settings})


def write_all(made: FilesWriter, clock: Clock) -> None:
    made.resume()
    clock.steps(made, lambda: made.has_written_all_but_last)
    made.finish()
    clock.steps(made, lambda: made.has_finished)


def events_in(location: Path) -> list[Any]:
    found = []
    for path in sorted(location.rglob("*.avro")):
        with path.open("rb") as stream:
            found += EventFile(str(path), stream).each()
    return found


@pytest.mark.parametrize("source", FilesOf)
def test_sorted_by_the_documented_order_files_have_the_sources_history(
    source: FilesOf, tmp_path: Path, clock: Clock
):
    made = make(tmp_path, source=source)
    write_all(made, clock)
    read = events_in(made.location)
    changes = {one.uuid: one for one in read if one.read_method.kind is ReadKind.CDC}
    by_key = sorted(changes.values(), key=lambda one: one.order_key)

    assert {one.uuid for one in read} == set(made.events)
    assert [made.events[one.uuid].number for one in by_key] == list(range(360))
    assert len({one.order_key for one in by_key}) == 360
    assert made.copies == len(read) - len(made.events) > 0
    assert made.event_counts["changes"] == 360
    rows = made.event_counts["rows"]
    assert rows == len(made.events) - 360
    assert 29 - 5 <= rows <= 29
    assert 0 < made.event_counts["late"] < 360
    folders = {path.parent for path in made.location.rglob("*.avro")}
    assert all(len(folder.relative_to(made.location).parts) == 6 for folder in folders)


def test_events_lead_to_the_final_tables(tmp_path: Path, clock: Clock):
    made = make(tmp_path)
    write_all(made, clock)
    tables: dict[str, dict[Any, Any]] = {"bank.accounts": {}, "bank.ledger": {}}
    ordered = sorted(made.events.values(), key=lambda one: -1 if one.number is None else one.number)
    for event in ordered:
        if event.is_deleted:
            tables[event.table].pop(event.key)
        else:
            tables[event.table][event.key] = event.row

    assert tables == made.final_tables
    assert made.topic_name("ledger") == "bank.ledger"


def test_it_waits_at_the_pause_and_before_the_last_transfer(tmp_path: Path, clock: Clock):
    made = make(tmp_path)
    clock.steps(made, lambda: clock.now_s > BEGAN_S + 60)
    assert made.done == 12
    made.resume()
    clock.steps(made, lambda: made.has_written_all_but_last)
    assert made.done == 119
    assert len(made.events) == made.event_counts["rows"] + 3 * 119
    made.step(now_s=clock.now_s)
    assert made.done == 119
    made.finish()
    clock.steps(made, lambda: made.has_finished)
    last = max(made.events.values(), key=lambda one: one.number or 0)
    assert last.source_us == made.last_source_us
    assert last.is_in_time


def test_no_limit_of_the_rate_makes_all_at_once(tmp_path: Path, clock: Clock):
    made = make(tmp_path, rate_max=0.0)
    made.step(now_s=clock.now_s)

    assert made.done == 12


def test_a_late_file_makes_its_events_late(tmp_path: Path, clock: Clock):
    made = make(tmp_path)
    write_all(made, clock)

    for event in made.events.values():
        assert event.is_in_time == (event.written_us - event.source_us < 8_000_000)


def test_the_thread_writes_and_its_failure_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    made = make(tmp_path, location=tmp_path / "new", transfers=10, pause_at=3)
    wrote = threading.Event()

    def fail(*_: Any, **__: Any) -> None:
        wrote.set()
        raise OSError("disk full")

    monkeypatch.setattr(FilesWriter, "step", fail)
    monkeypatch.setattr(module, "_STEP_S", 0.0)
    made.start()
    assert wrote.wait(30)
    made.stop()

    with pytest.raises(PartFailedError, match="writer of files failed"):
        _ = made.has_finished
