"""The change streams of one database: what each has, what commits add, how stream partitions turn.

The catalogue holds the definitions; this holds everything that a definition does not say. It
follows the catalogue, takes the changes of each commit, and splits, merges and moves on command.
`listener` hears which stream partitions have something new.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidegate.spanner_simulator.core.change_streams.assembly import CommitFacts, assemble
from tidegate.spanner_simulator.core.change_streams.commit_log import CommitLog
from tidegate.spanner_simulator.core.change_streams.key_choice import (
    initial_borders,
    merge_candidates,
    split_candidate,
    split_key,
)
from tidegate.spanner_simulator.core.change_streams.stream_partitions import (
    Chance,
    StreamPartition,
    StreamPartitions,
)
from tidegate.spanner_simulator.core.rows.mutations import whole_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tidegate.spanner_simulator.core.rows.mutations import RowChange
    from tidegate.spanner_simulator.core.rows.storage import TableRows
    from tidegate.spanner_simulator.core.schema.catalogue import Catalogue
    from tidegate.spanner_simulator.core.schema.schema_objects import ChangeStream
    from tidegate.spanner_simulator.core.timestamps import CommitClock
    from tidegate.spanner_simulator.core.values import Plain

__all__ = ["ChangeStreams", "StreamState"]


@dataclass(slots=True)
class StreamState:
    """What a change stream has besides its definition, which lives in the catalogue."""

    name: str
    partitions: StreamPartitions
    log: CommitLog = field(default_factory=CommitLog)
    is_dropped: bool = False


class ChangeStreams:
    """See the module. Raises `SpannerError` for whatever cannot be done."""

    def __init__(
        self, catalogue: Catalogue, clock: CommitClock, chance: Chance, *, initial_count: int
    ) -> None:
        """`initial_count`: stream partitions of a new change stream."""
        self.by_name: dict[str, StreamState] = {}
        self.listener: Callable[[Iterable[str]], None] = lambda _tokens: None
        self._catalogue = catalogue
        self._clock = clock
        self._chance = chance
        self._initial_count = initial_count

    def state(self, name: str) -> StreamState:
        """A change stream's state, or NOT_FOUND."""
        return self.by_name[self._catalogue.stream(name).name.lower()]

    def follow_schema(self, rows: Mapping[str, TableRows], *, at_us: int) -> None:
        """Start what the catalogue has gained and end what it has lost."""
        streams = self._catalogue.streams
        for name in streams.keys() - self.by_name.keys():
            self.by_name[name] = self._new_state(streams[name], rows, at_us)
        for name in self.by_name.keys() - streams.keys():
            state = self.by_name.pop(name)
            state.is_dropped = True
            self.listener([one.token for one in state.partitions.by_token.values()])

    def _new_state(
        self, stream: ChangeStream, rows: Mapping[str, TableRows], at_us: int
    ) -> StreamState:
        watched = [
            table
            for table in self._catalogue.tables.values()
            if stream.tracked_columns(table) is not None
        ]
        borders = initial_borders(watched, rows, self._initial_count)
        return StreamState(stream.name, StreamPartitions(self._chance, borders, start_us=at_us))

    def publish(
        self, changes: Sequence[RowChange], facts: CommitFacts, *, is_excluded: bool
    ) -> None:
        """Give every change stream its records of one committed transaction."""
        news: list[str] = []
        for name, state in self.by_name.items():
            stream = self._catalogue.streams[name]
            if is_excluded and stream.option("allow_txn_exclusion") is True:
                continue
            assembled = assemble(stream, state.partitions, changes, facts)
            for partition, record in assembled.records:
                partition.append(record)
                news.append(partition.token)
            for change in changes:
                if stream.tracked_columns(change.table) is not None:
                    state.partitions.locate(change.key).recent_keys.append(change.key)
            state.log.note(stream, changes, facts, assembled)
        if news:
            self.listener(news)

    def split(
        self,
        stream: str,
        *,
        now_us: int,
        token: str | None = None,
        table: str | None = None,
        key: list[Plain] | None = None,
    ) -> list[StreamPartition]:
        """Split the one with a token, or the one that holds a key, or the busiest one."""
        partitions = self.state(stream).partitions
        if table is not None:
            at = whole_key(self._catalogue.table(table), key or [])
            parent = partitions.locate(at)
        else:
            parent = partitions.find_live(token) if token else split_candidate(partitions.live)
            at = split_key(parent)
        at_us = self._turn([parent], now_us)
        children = partitions.split(parent, at, at_us=at_us)
        self._announce([parent], at_us)
        return children

    def merge(
        self, stream: str, *, now_us: int, tokens: Sequence[str] = ()
    ) -> list[StreamPartition]:
        """Merge these neighbours, or the least busy pair."""
        partitions = self.state(stream).partitions
        parents = (
            [partitions.find_live(token) for token in dict.fromkeys(tokens)]
            if tokens
            else merge_candidates(partitions.live)
        )
        at_us = self._turn(parents, now_us)
        children = partitions.merge(parents, at_us=at_us)
        self._announce(parents, at_us)
        return children

    def move(self, stream: str, *, now_us: int, token: str | None = None) -> list[StreamPartition]:
        """Move the one with a token, or the busiest one."""
        partitions = self.state(stream).partitions
        parent = partitions.find_live(token) if token else split_candidate(partitions.live)
        at_us = self._turn([parent], now_us)
        children = partitions.move(parent, at_us=at_us)
        self._announce([parent], at_us)
        return children

    def _turn(self, parents: Sequence[StreamPartition], now_us: int) -> int:
        """The time at which children may start: after all commits and promises, and a life."""
        return max(self._clock.next_us(now_us), *(parent.start_us + 1 for parent in parents))

    def _announce(self, parents: Sequence[StreamPartition], at_us: int) -> None:
        self._clock.close(at_us - 1)
        self.listener([parent.token for parent in parents])
