"""Reads one stream partition: the rows to send now, and the time of the next poll.

`PartitionQuery.poll` is given the time and returns the rows that a server sends next.  Its
guarantees: records in commit order; after a heartbeat at T nothing of this stream partition commits
at or before T; child records come after all data, and only if the lifetime ended at or before the
query's end; records that expired unread end the query with an error, never silently.
"""

from __future__ import annotations

from dataclasses import dataclass

from spanner_simulator.core.change_streams.query_errors import no_longer_valid, start_too_old
from spanner_simulator.core.change_streams.records import (
    Child,
    ChildPartitionsRecord,
    DataChangeRecord,
    HeartbeatRecord,
    PartitionStartRecord,
    StreamRow,
)
from spanner_simulator.core.change_streams.stream_partition import StreamPartition
from spanner_simulator.core.change_streams.stream_partitions import StreamPartitions
from spanner_simulator.core.timestamps import CommitClock

ROWS_PER_POLL_MAX = 4096


@dataclass(frozen=True, slots=True)
class Position:
    """The progress of a query, as in a resume token.

    `data_index` is the index of the next record of the stream partition, `child_index` the number
    of child records sent, `serial` the number of all rows, which makes each position unique.
    `chunk` counts the pieces sent of a row that is too large for one message.
    """

    data_index: int
    child_index: int
    serial: int
    chunk: int = 0

    def after(self, row: StreamRow) -> Position:
        """The position once this row was sent."""
        match row:
            case HeartbeatRecord():
                return Position(self.data_index, self.child_index, self.serial + 1)
            case ChildPartitionsRecord():
                return Position(self.data_index, self.child_index + 1, self.serial + 1)
            case _:
                return self.after_data(1)

    def after_data(self, count: int) -> Position:
        """The position once this many records of the stream partition were sent."""
        return Position(self.data_index + count, self.child_index, self.serial + count)


@dataclass(slots=True)
class Step:
    """The rows to send now; then the end, or nothing to do before `wake_at_us` or new data.

    The stream partition's records of `data` come first, then `rows`.
    """

    data: range
    rows: list[StreamRow]
    is_finished: bool
    wake_at_us: int


def initial_rows(partitions: StreamPartitions, start_ns: int) -> list[StreamRow]:
    """The answer to a query without a token: a row for each one active at the start.

    All rows have one start timestamp, so their sequence numbers matter.
    """
    active = enumerate(partitions.active_at(start_ns))
    if partitions.is_mutable:
        return [
            PartitionStartRecord(start_ns, f"{0:016x}-{number:08x}", (partition.token,))
            for number, partition in active
        ]
    return [
        ChildPartitionsRecord(start_ns, f"{number:08d}", (Child(partition.token, ()),))
        for number, partition in active
    ]


def without_ending(partition: StreamPartition, step: Step) -> Step:
    """A last step without the records after the stream partition's data."""
    rows: list[StreamRow] = [row for row in step.rows if not isinstance(row, ChildPartitionsRecord)]
    stop = step.data.stop
    # With mutable key ranges these are its last records, all at the instant of its end.
    while stop > step.data.start and (
        not isinstance(last := partition.records[stop - 1], DataChangeRecord)
        and last.commit_timestamp_us == partition.end_us
    ):
        stop -= 1
    return Step(range(step.data.start, stop), rows, step.is_finished, step.wake_at_us)


class PartitionQuery:
    """A running query of one stream partition. `end_ns` is inclusive; None: no end.

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
        """`separate_children` announces each child in its own record, as a server may."""
        self.partition = partition
        self._clock = clock
        self._start_ns = start_ns
        self._end_ns = end_ns
        self._end_us = None if end_ns is None else end_ns // 1000
        self._heartbeat_us = heartbeat_us
        self._separate_children = separate_children
        self._start_us = -(-start_ns // 1000)
        self._last_sent_us = max(opened_at_us, self._start_us)
        if resume is None:
            resume = Position(partition.records.index_at(self._start_us), 0, 0)
        self.position = resume

    def poll(self, now_us: int, *, earliest_us: int = 0, data_max: int = ROWS_PER_POLL_MAX) -> Step:
        """The next rows, at most `data_max` records and then those that follow them.

        Call again at `wake_at_us` or when the stream partition changed.  Raises OUT_OF_RANGE if an
        unreturned record is older than `earliest_us`, where the retention begins.
        """
        if now_us < self._start_us:
            return Step(range(0), [], is_finished=False, wake_at_us=self._start_us)
        self.check_retention(self.position, earliest_us)
        data, is_drained = self._take_data(data_max)
        rows: list[StreamRow] = []
        if not is_drained:
            return self._step(data, rows, now_us, is_finished=False, wake_at_us=now_us)
        ended_us = self.partition.end_us
        if ended_us is not None and (self._end_us is None or ended_us <= self._end_us):
            self._take_children(rows)
            return self._step(data, rows, now_us, is_finished=True, wake_at_us=now_us)
        if self._end_us is not None and (now_us >= self._end_us or ended_us is not None):
            # Otherwise a commit could still get the very last instant of the query.
            self._clock.close(self._end_us)
            if self.position.serial == 0 and self._end_ns is not None:
                self._add(rows, HeartbeatRecord(self._end_ns))
            return self._step(data, rows, now_us, is_finished=True, wake_at_us=now_us)
        if not data and now_us - self._last_sent_us >= self._heartbeat_us:
            self._add(rows, HeartbeatRecord(self._heartbeat_at_us(now_us) * 1000))
        last_sent_us = now_us if data or rows else self._last_sent_us
        wake_at_us = last_sent_us + self._heartbeat_us
        if self._end_us is not None:
            wake_at_us = min(wake_at_us, self._end_us)
        return self._step(data, rows, now_us, is_finished=False, wake_at_us=wake_at_us)

    def _step(
        self,
        data: range,
        rows: list[StreamRow],
        now_us: int,
        *,
        is_finished: bool,
        wake_at_us: int,
    ) -> Step:
        if data or rows:
            self._last_sent_us = now_us
        return Step(data, rows, is_finished=is_finished, wake_at_us=wake_at_us)

    def _heartbeat_at_us(self, now_us: int) -> int:
        at_us = self._clock.read_now_us(now_us)
        # A time ahead of the clock may be after the query's end, and is then not part of it.
        return at_us if self._end_us is None else min(at_us, self._end_us)

    def _add(self, rows: list[StreamRow], row: StreamRow) -> None:
        rows.append(row)
        self.position = self.position.after(row)

    def check_retention(self, position: Position, earliest_us: int) -> None:
        """OUT_OF_RANGE if records after a position have expired."""
        partition, records, index = self.partition, self.partition.records, position.data_index
        if partition.end_us is not None and partition.end_us < earliest_us:
            raise no_longer_valid()
        if index < records.first:
            raise start_too_old(self._start_ns, earliest_us)
        if index < records.end and records[index].commit_timestamp_us < earliest_us:
            raise start_too_old(self._start_ns, earliest_us)

    def _take_data(self, data_max: int) -> tuple[range, bool]:
        records = self.partition.records
        first = self.position.data_index
        end = records.end
        if self._end_us is not None:
            end = max(first, min(end, records.index_at(self._end_us + 1)))
        last = min(end, first + data_max)
        self.position = self.position.after_data(last - first)
        return range(first, last), last == end

    def _take_children(self, rows: list[StreamRow]) -> None:
        ended_us = self.partition.end_us or 0
        children = [Child(child.token, child.parents) for child in self.partition.children]
        groups = [(child,) for child in children] if self._separate_children else [tuple(children)]
        if self.partition.is_mutable:
            groups = []
        for index in range(self.position.child_index, len(groups)):
            record = ChildPartitionsRecord(ended_us * 1000, f"{index:08d}", groups[index])
            self._add(rows, record)
