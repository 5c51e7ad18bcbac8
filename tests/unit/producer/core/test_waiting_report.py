"""Reports of what waits: soon, then once a minute, and once when nothing waits any more."""

from __future__ import annotations

from tidegate.producer.core.effects import ReportWaiting
from tidegate.producer.core.lifecycle import PartitionState
from tidegate.producer.core.waiting_report import WaitingReport

MINUTE_US = 60_000_000
WAITING = {PartitionState.QUEUED: 3, PartitionState.PAUSED: 1, PartitionState.RUNNING: 2}
NONE = {PartitionState.RUNNING: 5}


def test_nothing_is_reported_while_nothing_waits():
    assert WaitingReport().report(NONE, 0) is None


def test_what_waits_is_reported_once_a_minute():
    report = WaitingReport()

    assert report.report(WAITING, 0) == ReportWaiting(3, 1, 2)
    assert report.report(WAITING, MINUTE_US - 1) is None
    assert report.report(WAITING, MINUTE_US) == ReportWaiting(3, 1, 2)


def test_the_end_is_reported_once():
    report = WaitingReport()
    report.report(WAITING, 0)

    assert report.report(NONE, 1) is None
    assert report.report(NONE, MINUTE_US) == ReportWaiting(0, 0, 5)
    assert report.report(NONE, 5 * MINUTE_US) is None


def test_waits_that_come_and_go_are_no_more_lines():
    report = WaitingReport()
    lines = [
        report.report(states, at_us)
        for at_us in range(0, 10 * MINUTE_US, 1_000_000)
        for states in (WAITING, NONE)
    ]

    assert sum(line is not None for line in lines) == 10


def test_what_is_paused_waits_too():
    paused = {PartitionState.PAUSED: 1}

    assert WaitingReport().report(paused, 0) == ReportWaiting(0, 1, 0)
