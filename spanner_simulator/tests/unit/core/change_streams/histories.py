"""Seeded histories of a database, and readers that follow a change stream by the rules.

A history mixes commits (some concurrent, some sharing a timestamp), splits, merges, moves and
altered capture types. Readers are interrupted and resumed at random. `World.out` is what they
release, in the order in which they do.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from spanner_simulator.core.change_streams.records import (
    ChildPartitionsRecord,
    DataChangeRecord,
    HeartbeatRecord,
    PartitionEndRecord,
    PartitionEventRecord,
    PartitionStartRecord,
    StreamRow,
)
from spanner_simulator.core.change_streams.stream_query import (
    PartitionQuery,
    Position,
    initial_rows,
)
from spanner_simulator.core.database import Database, DatabaseSettings
from spanner_simulator.core.journal import entry_to_plain
from spanner_simulator.core.rows.key_sets import KeySet
from spanner_simulator.core.rows.mutations import Delete, Mutation, Write
from spanner_simulator.core.rows.transactions import Transaction
from spanner_simulator.core.values import Plain
from spanner_simulator.errors import Code, SpannerError

HEARTBEAT_US = 40
WINDOW_US = 150
TABLES = (
    "CREATE TABLE A (K INT64 NOT NULL, V INT64, W STRING(MAX)) PRIMARY KEY (K)",
    "CREATE TABLE B (K INT64 NOT NULL, V INT64) PRIMARY KEY (K DESC)",
)
CAPTURES = ("OLD_AND_NEW_VALUES", "NEW_ROW", "NEW_VALUES", "NEW_ROW_AND_OLD_VALUES")


@dataclass
class Reading:
    """One stream partition as its reader sees it."""

    token: str
    start_us: int
    parents: set[str] = field(default_factory=set)
    is_finished: bool = False
    position: Position | None = None
    last_us: int = 0
    heartbeat_us: int = 0
    # Mutable key ranges: the window of the running query, the last record released, and the
    # time of a move-in with the sources that have to get there first.
    window_us: int = 0
    last_place: tuple[int, str] = (0, "")
    waits_us: int = 0
    waits_for: tuple[str, ...] = ()

    def has_passed(self, at_us: int) -> bool:
        """Whether everything up to a time, inclusive, was released."""
        return self.is_finished or self.heartbeat_us >= at_us or self.last_us > at_us


class World:
    """A database, a random history on it, and what every reader needs."""

    MODE = "IMMUTABLE_KEY_RANGE"

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now_us = 1_000
        self.database = Database("d", random.Random(seed + 1), DatabaseSettings(3, 0.5))
        self.journal: list[Plain] = []
        self.database.journal.listener = lambda entry: self.journal.append(entry_to_plain(entry))
        stream = f"CREATE CHANGE STREAM S FOR A, B OPTIONS (partition_mode = '{self.MODE}')"
        self.ddl(*TABLES, stream)
        self.state = self.database.streams.state("S")
        self.open: list[Transaction] = []
        self.out: list[DataChangeRecord] = []
        self.readings: dict[str, Reading] = {}
        self.now_us += 5
        for row in initial_rows(self.state.partitions, self.now_us * 1000):
            token = self.announced(row)
            self.readings[token] = Reading(token, self.now_us, window_us=self.now_us)

    def announced(self, row: StreamRow) -> str:
        assert isinstance(row, ChildPartitionsRecord)
        return row.children[0].token

    def ddl(self, *statements: str) -> None:
        self.database.apply_ddl(statements, now_us=self.now_us)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    def step(self) -> None:
        self.now_us += self.chance.choice([0, 0, 1, 1, 5, 50])
        acts = (
            [self.commit] * 10
            + [lambda: self.open.append(self.database.begin())] * 4
            + [self.change] * 4
            + [self.read] * 6
        )
        self.chance.choice([*acts, self.alter])()

    def alter(self) -> None:
        capture = self.chance.choice(CAPTURES)
        self.ddl(f"ALTER CHANGE STREAM S SET OPTIONS (value_capture_type = '{capture}')")

    def commit(self) -> None:
        if self.open and self.chance.random() < 0.7:
            transaction = self.open.pop(self.chance.randrange(len(self.open)))
        else:
            transaction = self.database.begin()
        mutations = [self.mutation() for _ in range(self.chance.randint(1, 4))]
        self.database.commit(transaction, mutations, now_us=self.now_us)

    def mutation(self) -> Mutation:
        table, key = self.chance.choice("AB"), str(self.chance.randint(-8, 8) * 10**18)
        if self.chance.random() < 0.25:
            return Delete(table, KeySet(keys=([key],)))
        kind = self.chance.choice(["insert_or_update", "insert_or_update", "replace"])
        value = str(self.chance.randint(0, 99))
        if table == "A" and self.chance.random() < 0.5:
            return Write(kind, table, ("K", "W"), ([key, f"ä{value}"],))  # type: ignore[arg-type]
        return Write(kind, table, ("K", "V"), ([key, value],))  # type: ignore[arg-type]

    def change(self) -> None:
        live = self.state.partitions.live
        one = self.chance.choice(live)
        try:
            match self.chance.choice(["split", "merge", "move"]):
                case "split":
                    self.database.streams.split("S", now_us=self.now_us, token=one.token)
                case "merge" if len(live) > 1:
                    index = live.index(one)
                    tokens = [each.token for each in live[max(0, index - 1) :][:2]]
                    self.database.streams.merge("S", now_us=self.now_us, tokens=tokens)
                case _:
                    self.database.streams.move("S", now_us=self.now_us, token=one.token)
        except SpannerError as error:
            # Too narrow to split, no keys to move; anything else is a fault of the simulator.
            if error.code not in (Code.FAILED_PRECONDITION, Code.INVALID_ARGUMENT):
                raise

    def read(self) -> None:
        for reading in list(self.readings.values()):
            if self.may_read(reading) and self.chance.random() < 0.6:
                self.poll(reading)

    def may_read(self, reading: Reading) -> bool:
        parents = [self.readings.get(parent) for parent in reading.parents]
        return not reading.is_finished and all(one and one.is_finished for one in parents)

    def query(self, reading: Reading) -> PartitionQuery:
        """A query, opened or resumed now."""
        return PartitionQuery(
            self.state.partitions.by_token[reading.token],
            self.database.clock,
            start_ns=reading.start_us * 1000,
            end_ns=None,
            heartbeat_us=HEARTBEAT_US,
            opened_at_us=self.now_us - HEARTBEAT_US,
            resume=reading.position,
            separate_children=reading.token < "m",
        )

    def poll(self, reading: Reading) -> None:
        """Poll once; the connection breaks anywhere."""
        query = self.query(reading)
        position = query.position
        step = query.poll(self.now_us, data_max=self.chance.choice([1, 3, 1000]))
        rows = [*query.partition.records.span(step.data.start, step.data.stop), *step.rows]
        rows = rows[: self.chance.randint(0, len(rows))] if self.chance.random() < 0.5 else rows
        is_whole = len(rows) == len(step.data) + len(step.rows)
        for row in rows:
            position = position.after(row)
            self.take(reading, row)
        reading.position = position
        if step.is_finished and is_whole:
            self.finish(reading)

    def finish(self, reading: Reading) -> None:
        reading.is_finished = True

    def take(self, reading: Reading, row: StreamRow) -> None:
        match row:
            case DataChangeRecord():
                self.release(reading, row)
            case HeartbeatRecord():
                at_us = row.timestamp_ns // 1000
                assert at_us >= max(reading.last_us, reading.heartbeat_us)
                reading.heartbeat_us = at_us
            case ChildPartitionsRecord():
                self.children(reading, row)
            case _:
                raise AssertionError(row)

    def release(self, reading: Reading, row: DataChangeRecord) -> None:
        assert row.commit_timestamp_us > reading.heartbeat_us
        assert row.commit_timestamp_us >= max(reading.last_us, reading.start_us)
        reading.last_us = row.commit_timestamp_us
        self.out.append(row)

    def children(self, reading: Reading, row: ChildPartitionsRecord) -> None:
        start_us = row.start_timestamp_ns // 1000
        assert start_us > max(reading.last_us, reading.heartbeat_us)
        for child in row.children:
            assert reading.token in child.parent_tokens
            known = self.readings.setdefault(
                child.token, Reading(child.token, start_us, set(child.parent_tokens))
            )
            assert (known.start_us, known.parents) == (start_us, set(child.parent_tokens))

    def drain(self) -> None:
        """Read on until everything committed was released."""
        last_us = max(self.now_us, self.database.clock.last_commit_us) + 1
        for _ in range(10_000):
            self.now_us += HEARTBEAT_US
            for reading in list(self.readings.values()):
                if self.may_read(reading):
                    self.poll(reading)
            live = {one.token for one in self.state.partitions.live}
            left = {one.token for one in self.readings.values() if not one.is_finished}
            if left == live and all(self.readings[one].has_passed(last_us) for one in live):
                return
        raise AssertionError("the readers never caught up")

    def records(self) -> Iterator[tuple[str, StreamRow]]:
        """Everything that is kept, with the token of its stream partition."""
        for token, partition in self.state.partitions.by_token.items():
            for record in partition.records:
                yield token, record


class MutableWorld(World):
    """The same with mutable key ranges, read in windows.

    A reader that meets a move-in at T releases nothing behind it until the readers of all sources
    have released everything up to T.
    """

    MODE = "MUTABLE_KEY_RANGE"

    def announced(self, row: StreamRow) -> str:
        assert isinstance(row, PartitionStartRecord)
        return row.partition_tokens[0]

    def change(self) -> None:
        live = self.state.partitions.live
        if len(live) < 2 or self.chance.random() < 0.6:
            super().change()
            return
        source, destination = self.chance.sample(live, 2)
        low, high = sorted(self.chance.randint(-8, 8) * 10**18 for _ in range(2))
        try:
            self.database.streams.move_keys(
                "S",
                now_us=self.now_us,
                source=source.token,
                destination=destination.token,
                table="A",
                first_key=[str(low)],
                last_key=[str(high)],
            )
        except SpannerError as error:
            if error.code is not Code.INVALID_ARGUMENT:
                raise

    def query(self, reading: Reading) -> PartitionQuery:
        return PartitionQuery(
            self.state.partitions.by_token[reading.token],
            self.database.clock,
            start_ns=reading.window_us * 1000,
            end_ns=(reading.window_us + WINDOW_US) * 1000,
            heartbeat_us=HEARTBEAT_US,
            opened_at_us=self.now_us - HEARTBEAT_US,
            resume=reading.position,
        )

    def may_read(self, reading: Reading) -> bool:
        sources = [self.readings.get(token) for token in reading.waits_for]
        is_free = all(one and one.has_passed(reading.waits_us) for one in sources)
        if is_free:
            reading.waits_for = ()
        return not reading.is_finished and is_free

    def poll(self, reading: Reading) -> None:
        """One row at a time, as the reader may have to stop behind any of them."""
        query = self.query(reading)
        if reading.position is None:
            reading.position = query.position
        step = query.poll(self.now_us, data_max=1)
        for row in [*query.partition.records.span(step.data.start, step.data.stop), *step.rows]:
            reading.position = reading.position.after(row)
            self.take(reading, row)
        if step.is_finished and not reading.is_finished:
            # The window is over: everything in it, its end included, was returned.
            reading.window_us += WINDOW_US
            reading.position = None
            if not reading.waits_for:
                reading.heartbeat_us = max(reading.heartbeat_us, reading.window_us)

    def take(self, reading: Reading, row: StreamRow) -> None:
        assert not reading.is_finished
        if isinstance(row, HeartbeatRecord):
            assert row.timestamp_ns // 1000 >= max(reading.last_us, reading.heartbeat_us)
            reading.heartbeat_us = row.timestamp_ns // 1000
            return
        assert not isinstance(row, ChildPartitionsRecord)
        place = (row.commit_timestamp_us, row.record_sequence)
        if place <= reading.last_place:
            # The boundary of two windows comes twice, and nothing else does.
            assert row.commit_timestamp_us == reading.window_us
            return
        assert row.commit_timestamp_us >= reading.start_us
        assert row.commit_timestamp_us > reading.heartbeat_us
        reading.last_place, reading.last_us = place, row.commit_timestamp_us
        match row:
            case DataChangeRecord():
                self.out.append(row)
            case PartitionStartRecord():
                for token in row.partition_tokens:
                    start_us = row.commit_timestamp_us
                    assert token not in self.readings
                    self.readings[token] = Reading(token, start_us, window_us=start_us)
            case PartitionEventRecord():
                assert row.partition_token == reading.token
                reading.waits_us = row.commit_timestamp_us
                reading.waits_for = row.move_in_sources
            case PartitionEndRecord():
                assert row.partition_token == reading.token
                reading.is_finished = True
