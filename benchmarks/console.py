"""CPU time of the console's pages: `python -m benchmarks.console --stream-partitions 10000`."""

from __future__ import annotations

import argparse
import statistics
import sys
import time

from tidegate.lineage.fleet_status import (
    FleetStatus,
    PartitionCondition,
    PartitionStatus,
    SlotStatus,
)
from tidegate.producer.cli.console.board import Board
from tidegate.producer.cli.console.change_search import Search
from tidegate.producer.cli.console.config import ConsoleConfig
from tidegate.producer.cli.console.lives import Kind, Life
from tidegate.producer.cli.console.pages import Pages
from tidegate.producer.cli.dead_letters import DeadLetterReport
from tidegate.producer.cli.status import StreamStatus
from tidegate.producer.cli.stream_states import StreamState

SLOTS = 16
RUNS = 5
SECOND_US = 1_000_000
ASKED = (("/", {}), ("/partitions", {}), ("/partitions", {"slots": "3"}), ("/workers", {}))


def board(count: int, now_us: int) -> Board:
    """Return a board with so many open stream partitions, and as many that have finished."""
    lives, open_ones = [], []
    for number in range(count):
        token, slot = f"__8BAYEG0qQD8AABgsBDg3MDRhXz{number:06}", number % SLOTS
        start_us = now_us - (60 + number % 3_500) * SECOND_US
        mark_us = now_us - SECOND_US
        parent = f"finished-{number:06}"
        lives.append(Life(token, slot, (parent,), Kind.OPEN, start_us, None, mark_us, "w1"))
        lives.append(
            Life(parent, slot, (), Kind.FINISHED, start_us - 600 * SECOND_US, start_us, None)
        )
        open_ones.append(PartitionStatus(token, slot, "w1", PartitionCondition.OPEN, mark_us, None))
    slots = tuple(SlotStatus(slot, "w1", 4, count // SLOTS, now_us) for slot in range(SLOTS))
    fleet = FleetStatus(
        stream="stream",
        epoch="epoch",
        watermark_us=now_us,
        has_ended=False,
        slots=slots,
        partitions=tuple(open_ones),
    )
    shown = Board(ConsoleConfig(), lambda **_: iter(()))
    shown.status = StreamStatus(fleet, StreamState.RUNNING, ("w1",), now_us)
    shown.lives = tuple(lives)
    return shown


def main() -> None:
    """Print the CPU time of each page: the median of five."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stream-partitions", type=int, default=10_000)
    count = parser.parse_args().stream_partitions
    pages = Pages(
        board(count, time.time_ns() // 1_000),
        refresh_s=2.0,
        search=lambda _table, _key, _hours: Search("", (), 0, is_cut=False),
        parked=lambda: DeadLetterReport("", 0, (), 0),
    )
    for path, query in ASKED:
        seconds = []
        for _ in range(RUNS):
            begun = time.process_time()
            page = pages.by_path[path](query)
            seconds.append(time.process_time() - begun)
        median_ms = statistics.median(seconds) * 1_000
        sys.stdout.write(f"{path} {query or ''} {median_ms:.0f} ms, {len(page) / 1_000:.0f} kB\n")


if __name__ == "__main__":
    main()
