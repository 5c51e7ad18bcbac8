"""Parked changes in the log: one line a minute for each topic and reason."""

import pytest
import structlog

from tidegate.producer.driver.parked_log import ParkedLog
from tidegate.producer.memory.clock import ManualClock
from tidegate.producer.messages import ParkedChange
from tidegate.schemas.instants import US_PER_SECOND

CHANGE = ParkedChange("p.t", b"k", b"o", b"U", b"{}", b"record", "SchemaError", "a text", "token")


@pytest.fixture
def lines():
    with structlog.testing.capture_logs() as found:
        yield found


def test_a_line_names_the_change_and_the_error(lines):
    ParkedLog(ManualClock())(CHANGE, "id=1", 1_700_000_000_123_456)

    assert lines == [
        {
            "event": "change parked",
            "log_level": "warning",
            "topic": "p.t",
            "key": "id=1",
            "commit_timestamp": "2023-11-14T22:13:20.123456Z",
            "reason": "SchemaError",
            "error": "a text",
            "token": "token",
            "left_out": 0,
        }
    ]


def test_a_cause_has_a_line_a_minute(lines):
    clock = ManualClock()
    log = ParkedLog(clock)
    for _ in range(3):
        for number in range(5):
            log(CHANGE, f"id={number}", 1)
            log(CHANGE._replace(reason="MessageTooLarge"), f"id={number}", 1)
        log(CHANGE._replace(topic="p.u"), "id=1", 1)
        clock.advance(60 * US_PER_SECOND)

    found = [(line["topic"], line["reason"], line["key"], line["left_out"]) for line in lines]
    first = [
        ("p.t", "SchemaError", "id=0"),
        ("p.t", "MessageTooLarge", "id=0"),
        ("p.u", "SchemaError", "id=1"),
    ]
    assert [line[:3] for line in found] == first * 3
    assert [line[3] for line in found] == [0, 0, 0, 4, 4, 0, 4, 4, 0]
