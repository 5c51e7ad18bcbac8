"""The change streams of one database: their state, the records of commits, and partition changes.

The catalogue holds the definitions; this module holds all other state.  It follows the catalogue,
adds the changes of each commit, and splits, merges and moves on command.  `listener` is called
after each commit, turn and schema change with the tokens of the stream partitions that have new
records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from spanner_simulator.core.change_streams.assembly import CommitFacts, assemble
from spanner_simulator.core.change_streams.commit_log import CommitLog
from spanner_simulator.core.change_streams.key_choice import (
    initial_borders,
    merge_candidates,
    split_candidate,
    split_key,
)
from spanner_simulator.core.change_streams.stream_partition import StreamPartition
from spanner_simulator.core.change_streams.stream_partitions import StreamPartitions
from spanner_simulator.core.journal import Journal, JournaledTurn, TurnKind
from spanner_simulator.core.key_encoding import successor
from spanner_simulator.core.rng import Rng
from spanner_simulator.core.rows.key_sets import decode_key, whole_key
from spanner_simulator.core.rows.mutations import RowChange
from spanner_simulator.core.rows.storage import KeyRange, TableRows
from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.schema_objects import ChangeStream
from spanner_simulator.core.timestamps import CommitClock
from spanner_simulator.core.values import Plain
from spanner_simulator.errors import invalid_argument


@dataclass(slots=True)
class StreamState:
    """The state of a change stream besides its definition, which is in the catalogue."""

    name: str
    partitions: StreamPartitions
    log: CommitLog = field(default_factory=CommitLog)
    is_dropped: bool = False


class ChangeStreams:
    """The state of all change streams.  Raises `SpannerError` for rejected operations."""

    def __init__(
        self,
        catalogue: Catalogue,
        clock: CommitClock,
        chance: Rng,
        *,
        journal: Journal | None = None,
    ) -> None:
        """`journal` gets an entry for each turn."""
        self.by_name: dict[str, StreamState] = {}
        self.listener: Callable[[Iterable[str]], None] = lambda _tokens: None
        self._catalogue = catalogue
        self._clock = clock
        self._chance = chance
        self._journal = journal
        self._order = 0

    def state(self, name: str) -> StreamState:
        """A change stream's state, or NOT_FOUND."""
        return self.by_name[self._catalogue.stream(name).name.lower()]

    def follow_schema(
        self, rows: Mapping[str, TableRows], *, at_us: int, initial_count: int
    ) -> None:
        """Start new change streams of the catalogue and end removed ones.

        A new change stream gets `initial_count` stream partitions, if its keys allow.  The listener
        is called for every schema change, because each has a timestamp.
        """
        ended: list[str] = []
        streams = self._catalogue.streams
        for name in streams.keys() - self.by_name.keys():
            self.by_name[name] = self._new_state(streams[name], rows, at_us, initial_count)
        for name in self.by_name.keys() - streams.keys():
            state = self.by_name.pop(name)
            state.is_dropped = True
            ended.extend(state.partitions.by_token)
        self.listener(ended)

    def _new_state(
        self,
        stream: ChangeStream,
        rows: Mapping[str, TableRows],
        at_us: int,
        initial_count: int,
    ) -> StreamState:
        watched = [
            table
            for table in self._catalogue.tables.values()
            if stream.tracked_columns(table) is not None
        ]
        borders = initial_borders(watched, rows, initial_count)
        is_mutable = stream.option("partition_mode") == "MUTABLE_KEY_RANGE"
        partitions = StreamPartitions(self._chance, borders, start_us=at_us, is_mutable=is_mutable)
        return StreamState(stream.name, partitions)

    def publish(
        self, changes: Sequence[RowChange], facts: CommitFacts, *, is_excluded: bool
    ) -> None:
        """Add the records of one committed transaction to every change stream.

        The listener is called for every commit, also for commits that no change stream watches.
        """
        news: list[str] = []
        self._order += 1
        for name, state in self.by_name.items():
            stream = self._catalogue.streams[name]
            if is_excluded and stream.option("allow_txn_exclusion") is True:
                continue
            assembled = assemble(stream, state.partitions, changes, facts, order=self._order)
            for partition, record in assembled.records:
                partition.append(record)
                news.append(partition.token)
            if assembled.records:
                for change in changes:
                    if stream.tracked_columns(change.table) is not None:
                        state.partitions.locate(change.key).recent_keys.append(change.key)
            state.log.note(stream, changes, facts, assembled)
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
        """Split the stream partition with a token, or of a table's key, or the busiest one."""
        partitions = self.state(stream).partitions
        if (key is None) != (table is None) or (table is not None and token):
            raise invalid_argument("A split takes a token, or a table and a key, or neither.")
        if table is not None:
            boundary = whole_key(self._catalogue.table(table), key or [])
            parent = partitions.locate(boundary)
        else:
            parent = partitions.find_live(token) if token else split_candidate(partitions.live)
            boundary = split_key(parent)
        at_us = self._turn([parent], now_us)
        children = partitions.split(parent, boundary, at_us=at_us, order=self._order + 1)
        self._announce([parent], at_us)
        where: dict[str, Plain] = {"token": parent.token}
        if table is not None:
            where = {"table": table, "key": list(key or [])}
        self._note("split", stream, at_us, where)
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
        children = partitions.merge(parents, at_us=at_us, order=self._order + 1)
        self._announce(parents, at_us)
        self._note("merge", stream, at_us, {"tokens": [parent.token for parent in parents]})
        return children

    def move(self, stream: str, *, now_us: int, token: str | None = None) -> list[StreamPartition]:
        """Move the stream partition with a token, or the busiest one.

        Immutable: its keys go to a child.  Mutable: the upper half of its keys goes to the least
        busy other one, if there is one.
        """
        partitions = self.state(stream).partitions
        parent = partitions.find_live(token) if token else split_candidate(partitions.live)
        siblings = [sibling for sibling in partitions.live if sibling is not parent]
        if partitions.is_mutable and siblings and parent.ranges:
            quiet = min(siblings, key=lambda sibling: len(set(sibling.recent_keys)))
            keys = KeyRange(split_key(parent), None)
            at_us = self._move_keys(partitions, parent, quiet, keys, now_us)
            children = [quiet]
        else:
            at_us = self._turn([parent], now_us)
            children = partitions.move(parent, at_us=at_us, order=self._order + 1)
            self._announce([parent], at_us)
        self._note("move", stream, at_us, {"token": parent.token})
        return children

    def move_keys(
        self,
        stream: str,
        *,
        now_us: int,
        source: str,
        destination: str,
        table: str | None = None,
        first_key: Sequence[Plain] | None = None,
        last_key: Sequence[Plain] | None = None,
    ) -> list[StreamPartition]:
        """Mutable key ranges: move keys of one live stream partition to another one.

        Keys of `table` from `first_key` to `last_key`, both inclusive, prefixes of keys allowed;
        None is the table's end.  Without a table all keys move.
        """
        partitions = self.state(stream).partitions
        if table is None and (first_key is not None or last_key is not None):
            raise invalid_argument("Keys are moved of a table, which is missing.")
        keys = KeyRange(b"", None)
        if table is not None:
            source_table = self._catalogue.table(table)
            low = source_table.encoded_key_of(decode_key(source_table, list(first_key or ())))
            high = successor(
                source_table.encoded_key_of(decode_key(source_table, list(last_key or ())))
            )
            keys = KeyRange(low, high)
        source_partition, destination_partition = (
            partitions.find_live(source),
            partitions.find_live(destination),
        )
        at_us = self._move_keys(partitions, source_partition, destination_partition, keys, now_us)
        arguments: dict[str, Plain] = {"source": source, "destination": destination}
        if table is not None:
            arguments["table"] = table
            arguments["first_key"] = None if first_key is None else list(first_key)
            arguments["last_key"] = None if last_key is None else list(last_key)
        self._note("move_keys", stream, at_us, arguments)
        return [destination_partition]

    def _move_keys(
        self,
        partitions: StreamPartitions,
        source: StreamPartition,
        destination: StreamPartition,
        keys: KeyRange,
        now_us: int,
    ) -> int:
        at_us = self._turn([source, destination], now_us)
        partitions.move_keys(source, destination, keys, at_us=at_us, order=self._order + 1)
        self._announce([source, destination], at_us)
        return at_us

    def expire(self, now_us: int) -> int:
        """Remove records older than each stream's retention period; return their number."""
        count = 0
        for name, state in self.by_name.items():
            earliest_us = now_us - self._catalogue.streams[name].retention_us
            count += state.partitions.expire(earliest_us)
            state.log.forget_before(earliest_us)
        return count

    def _turn(self, parents: Sequence[StreamPartition], now_us: int) -> int:
        """The time of a turn: after all commits, closed times, turns and the parents' starts."""
        if self._journal is not None:
            self._journal.begin_step()
        return max(
            self._clock.next_us(now_us),
            self._clock.last_turn_us + 1,
            *(parent.start_us + 1 for parent in parents),
        )

    def _announce(self, parents: Sequence[StreamPartition], at_us: int) -> None:
        self._order += 1
        self._clock.turned(at_us)
        self.listener([parent.token for parent in parents])

    def _note(self, kind: TurnKind, stream: str, at_us: int, arguments: dict[str, Plain]) -> None:
        if self._journal is not None:
            drawn = self._journal.chance.drawn
            self._journal.note(JournaledTurn(stream, kind, at_us, arguments, drawn))

    def replay(self, entry: JournaledTurn) -> None:
        """Repeat a turn of a journal, at the same time and with the same tokens."""
        turn = getattr(self, entry.kind)
        turn(entry.stream, now_us=entry.at_us, **entry.arguments)
