"""Log lines: JSON, to standard error."""

from __future__ import annotations

import json

import pytest
import structlog

from tidegate.program.logs import log_to_stderr


@pytest.fixture
def logged(capsys):
    def lines(level):
        log_to_stderr(level)
        log = structlog.get_logger("x")
        log.debug("small")
        log.info("middle", slots=(1, 2))
        try:
            int("cause")
        except ValueError:
            log.exception("great")
        printed = capsys.readouterr()
        assert printed.out == ""
        return [json.loads(line) for line in printed.err.splitlines()]

    yield lines
    structlog.reset_defaults()  # it holds the captured stderr, which is closed after the test


def test_log_lines_are_json_with_level_and_time(logged):
    middle, great = logged("info")
    assert middle["event"] == "middle"
    assert middle["level"] == "info"
    assert middle["slots"] == [1, 2]
    assert middle["timestamp"].endswith("Z")
    assert "ValueError: invalid" in great["exception"]


@pytest.mark.parametrize(
    ("level", "events"),
    [("debug", ["small", "middle", "great"]), ("warning", ["great"]), ("error", ["great"])],
)
def test_lesser_lines_are_left_out(logged, level, events):
    assert [line["event"] for line in logged(level)] == events
