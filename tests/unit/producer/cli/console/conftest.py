"""A console without Kafka: a board that shows what a test says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidegate.lineage.fleet_status import (
    FleetStatus,
    PartitionCondition,
    PartitionStatus,
    SlotStatus,
)
from tidegate.producer.cli.console.board import Board
from tidegate.producer.cli.console.change_search import Search
from tidegate.producer.cli.console.config import ConsoleConfig
from tidegate.producer.cli.console.history import Sample
from tidegate.producer.cli.console.lives import Kind, Life
from tidegate.producer.cli.console.pages import Pages
from tidegate.producer.cli.dead_letters import DeadLetterReport
from tidegate.producer.cli.status import StreamStatus, WorkerCounts
from tidegate.producer.cli.stream_states import StreamState
from tidegate.producer.observation.faults import RetriedFault

NOW_US = 1_700_000_000_000_000
SECOND_US = 1_000_000
STREAM = "projects/p/instances/i/databases/d/changeStreams/Everything"


def life(token, *, slot=0, kind=Kind.OPEN, start_s=-100.0, end_s=None, mark_s=-1.0, parents=()):
    """A stream partition; times are seconds from now."""
    return Life(
        token=token,
        slot=slot,
        parents=tuple(parents),
        kind=kind if end_s is None else Kind.FINISHED,
        start_us=NOW_US + round(start_s * SECOND_US),
        end_us=None if end_s is None else NOW_US + round(end_s * SECOND_US),
        watermark_us=None if end_s is not None else NOW_US + round(mark_s * SECOND_US),
    )


def open_partition(token, *, slot=0, worker="w1", behind_s=1.0, reason=None):
    condition = PartitionCondition.STOPPED if reason else PartitionCondition.OPEN
    mark_us = NOW_US - round(behind_s * SECOND_US)
    return PartitionStatus(
        token, slot, worker, condition, mark_us, reason,
        stopped_since_us=NOW_US if reason else None, error="QueryError" if reason else None,
    )  # fmt: skip


FLEET = FleetStatus(
    stream=STREAM,
    epoch="e1",
    watermark_us=NOW_US - 3 * SECOND_US,
    has_ended=False,
    slots=(
        SlotStatus(0, "w1", 4, 1, NOW_US - 3 * SECOND_US, heard_us=NOW_US),
        SlotStatus(1, "w2", 4, 1, NOW_US - SECOND_US, heard_us=NOW_US),
    ),
    partitions=(open_partition("slow", behind_s=3.0), open_partition("quick", slot=1, worker="w2")),
)
RUNNING = StreamStatus(
    FLEET, StreamState.RUNNING, ("w1", "w2"), now_us=NOW_US, changes_a_second=1_234.0
)
FAULT = RetriedFault("QueryError UNAVAILABLE", "slow", 3, NOW_US, NOW_US, "<it> broke", "Wait")
ASKED = replace(
    RUNNING,
    workers=(
        WorkerCounts("h:1", 3, 2, 1, 0, 0, retention_headroom_s=7_200.0, retried=(FAULT,)),
        WorkerCounts("h:2", error="refused"),
    ),
)
NOT_STARTED = StreamStatus(
    None, StreamState.NOT_STARTED, (), now_us=NOW_US, reason="no <topic> t-progress"
)


def failed(reason="the <view> is gone"):
    stopped = open_partition("slow", behind_s=300.0, reason=reason)
    fleet = replace(FLEET, partitions=(stopped, FLEET.partitions[1]))
    return replace(RUNNING, fleet=fleet, state=StreamState.FAILED)


class Console:
    """The pages over a board; `show` changes what the board has."""

    def __init__(self, output=""):
        self.board = Board(ConsoleConfig(output=output), statuses=lambda **_: iter(()))
        self.found = Search("t.Accounts", (), 0, is_cut=False)
        self.letters = DeadLetterReport("t-dead-letter", 0, (), 0)
        self.searched = []
        self.pages = Pages(
            self.board, refresh_s=2.0, search=self._search, parked=lambda: self.letters
        )

    def _search(self, table, key, hours):
        self.searched.append((table, key, hours))
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    def show(self, status, *, lives=()):
        self.board.status, self.board.lives = status, tuple(lives)
        self.board.looked_us = status.now_us
        for at_s in range(-20, 0, 2):
            sample = Sample(NOW_US + at_s * SECOND_US, 3.0, 100.0 - at_s)
            self.board.history.add(sample, epoch="e1")

    def page(self, path, **query):
        return self.pages.by_path[path](query)


@pytest.fixture
def console():
    return Console()
