"""The Kafka client's lines: in the program's log, one a minute per kind."""

from __future__ import annotations

import logging
import time

import pytest
import structlog
from confluent_kafka import Consumer

from tidegate.program.kafka_log import KafkaClientLog


class Clock:
    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def log(clock):
    return KafkaClientLog(interval_s=60, clock=clock)


@pytest.fixture
def lines():
    with structlog.testing.capture_logs() as captured:
        yield captured


def say(log, kind, text="down", level=logging.ERROR):
    log.log(level, "%s [%s] %s", kind, "worker-1", text)


def test_a_line_has_its_kind_and_level(log, lines):
    say(log, "FAIL")
    say(log, "OFFSET", level=logging.INFO)
    assert lines[0] == {
        "event": "Kafka client",
        "log_level": "warning",
        "kind": "FAIL",
        "client": "worker-1",
        "text": "down",
        "left_out": 0,
    }
    assert lines[1]["log_level"] == "info"


def test_two_hundred_lines_of_a_kind_are_one_a_minute(log, lines, clock):
    for _ in range(200):
        say(log, "FAIL")
        clock.seconds += 0.5
    assert [line["left_out"] for line in lines] == [0, 119]


def test_another_kind_is_not_held_back(log, lines):
    say(log, "FAIL")
    say(log, "SSL")
    assert [line["kind"] for line in lines] == ["FAIL", "SSL"]


def test_any_other_call_is_a_line_too(log, lines):
    log.log(logging.ERROR, "plain %s", "text")
    assert lines[0]["text"] == "plain text"


def test_a_real_clients_lines_come_here_and_not_to_standard_error(log, lines, capfd):
    consumer = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "logger": log})
    give_up_at = time.monotonic() + 10
    while not lines and time.monotonic() < give_up_at:
        consumer.poll(0.05)
    consumer.close()
    assert "127.0.0.1:1" in lines[0]["text"]
    assert capfd.readouterr().err == ""
