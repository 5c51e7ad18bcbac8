"""Reading one stream partition: rows now, and when to look again.

`PartitionQuery.poll` is given the time and returns what a server sends next. Its promises: data in
commit order; after a heartbeat at T nothing of this stream partition commits at or before T; the
child record comes after all data, and only if the life ended at or before the query's end.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from tidegate.spanner_simulator.core.change_streams.assembly import DataChangeRecord

if TYPE_CHECKING:
    from tidegate.spanner_simulator.core.change_streams.stream_partitions import (
        StreamPartition,
        StreamPartitions,
    )
    from tidegate.spanner_simulator.core.timestamps import CommitClock

__all__ = [
    "Child",
    "ChildPartitionsRecord",
    "HeartbeatRecord",
    "PartitionQuery",
    "Position",
    "StreamRow",
    "initial_rows",
]

ROWS_PER_POLL_MAX = 1000


@dataclass(frozen=True, slots=True)
class HeartbeatRecord:
    """Everything up to this time, inclusive, was returned."""

    timestamp_ns: int


@dataclass(frozen=True, slots=True)
class Child:
    """One child with all its parents."""

    token: str
    parent_tokens: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChildPartitionsRecord:
    """Children that start together."""

    start_timestamp_ns: int
    record_sequence: str
    children: tuple[Child, ...]


StreamRow: TypeAlias = "DataChangeRecord | HeartbeatRecord | ChildPartitionsRecord"


@dataclass(frozen=True, slots=True)
class Position:
    """How far a query has got: what a resume token says.

    `data_index` counts the stream partition's records, `child_index` its child records sent,
    `serial` all rows of the query, which makes each position unlike the one before.
    """

    data_index: int
    child_index: int
    serial: int

    def after(self, row: StreamRow) -> Position:
        """The position once this row was sent."""
        return Position(
            self.data_index + isinstance(row, DataChangeRecord),
            self.child_index + isinstance(row, ChildPartitionsRecord),
            self.serial + 1,
        )


@dataclass(slots=True)
class Step:
    """What to send now; then the end, or nothing to do before `wake_at_us` or new data."""

    rows: list[StreamRow]
    is_finished: bool
    wake_at_us: int


def initial_rows(partitions: StreamPartitions, start_ns: int) -> list[ChildPartitionsRecord]:
    """The answer to a query without a token: a row for each one active at the start."""
    return [
        ChildPartitionsRecord(start_ns, "00000000", (Child(one.token, ()),))
        for one in partitions.active_at(start_ns)
    ]


class PartitionQuery:
    """A running query of one stream partition. `end_ns` is inclusive; None means for ever.

    `position` is after the last row that `poll` returned.
    """

    def __init__(
        self,
        partition: StreamPartition,
        clock: CommitClock,
        *,
        start_ns: int,
        end_ns: int | None,
        heartbeat_us: int,
        opened_at_us: int,
        resume: Position | None = None,
        separate_children: bool = False,
    ) -> None:
        """`separate_children` announces each child in a record of its own, as a server may."""
        self.partition = partition
        self._clock = clock
        self._end_ns = end_ns
        self._end_us = None if end_ns is None else end_ns // 1000
        self._heartbeat_us = heartbeat_us
        self._separate_children = separate_children
        self._start_us = -(-start_ns // 1000)
        self._last_sent_us = max(opened_at_us, self._start_us)
        if resume is None:
            first = bisect_left(
                partition.records, self._start_us, key=lambda record: record.commit_timestamp_us
            )
            resume = Position(first, 0, 0)
        self.position = resume

    def poll(self, now_us: int) -> Step:
        """The next rows. Call again at `wake_at_us` or when the stream partition changed."""
        if now_us < self._start_us:
            return Step([], is_finished=False, wake_at_us=self._start_us)
        rows: list[StreamRow] = []
        is_drained = self._take_data(rows)
        if not is_drained:
            return self._step(rows, now_us, is_finished=False, wake_at_us=now_us)
        ended_us = self.partition.end_us
        if ended_us is not None and (self._end_us is None or ended_us <= self._end_us):
            self._take_children(rows)
            return self._step(rows, now_us, is_finished=True, wake_at_us=now_us)
        if self._end_us is not None and (now_us > self._end_us or ended_us is not None):
            # Without this a commit could still take the very last instant of the query.
            self._clock.close(self._end_us)
            if not rows and self.position.serial == 0 and self._end_ns is not None:
                self._add(rows, HeartbeatRecord(self._end_ns))
            return self._step(rows, now_us, is_finished=True, wake_at_us=now_us)
        if not rows and now_us - self._last_sent_us >= self._heartbeat_us:
            self._add(rows, HeartbeatRecord(self._clock.read_now_us(now_us) * 1000))
        if rows:
            self._last_sent_us = now_us
        wake_at_us = self._last_sent_us + self._heartbeat_us
        if self._end_us is not None:
            wake_at_us = min(wake_at_us, self._end_us + 1)
        return self._step(rows, now_us, is_finished=False, wake_at_us=wake_at_us)

    def _step(
        self, rows: list[StreamRow], now_us: int, *, is_finished: bool, wake_at_us: int
    ) -> Step:
        if rows:
            self._last_sent_us = now_us
        return Step(rows, is_finished=is_finished, wake_at_us=wake_at_us)

    def _add(self, rows: list[StreamRow], row: StreamRow) -> None:
        rows.append(row)
        self.position = self.position.after(row)

    def _take_data(self, rows: list[StreamRow]) -> bool:
        records = self.partition.records
        first = self.position.data_index
        last = min(len(records), first + ROWS_PER_POLL_MAX)
        if self._end_us is not None:
            past_end = bisect_left(
                records, self._end_us + 1, key=lambda record: record.commit_timestamp_us
            )
            last = min(last, max(first, past_end))
        for record in records[first:last]:
            self._add(rows, record)
        return last - first < ROWS_PER_POLL_MAX

    def _take_children(self, rows: list[StreamRow]) -> None:
        ended_us = self.partition.end_us or 0
        children = [Child(one.token, one.parents) for one in self.partition.children]
        groups = [(child,) for child in children] if self._separate_children else [tuple(children)]
        for index in range(self.position.child_index, len(groups)):
            record = ChildPartitionsRecord(ended_us * 1000, f"{index:08d}", groups[index])
            self._add(rows, record)
