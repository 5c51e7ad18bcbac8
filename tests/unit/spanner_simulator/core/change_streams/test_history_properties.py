"""Any history, read by the rules, gives back exactly what was committed.

A seeded history mixes commits (some concurrent, some sharing a timestamp), splits, merges, moves
and readers that follow the lineage: a child only after all its parents. Readers are interrupted
and resumed at random. The commit log is the judge.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.spanner_simulator.core.change_streams.records import (
    ChildPartitionsRecord,
    DataChangeRecord,
    HeartbeatRecord,
)
from tidegate.spanner_simulator.core.change_streams.stream_query import (
    PartitionQuery,
    Position,
    initial_rows,
)
from tidegate.spanner_simulator.core.database import Database, DatabaseSettings
from tidegate.spanner_simulator.core.rows.mutations import Delete, KeySet, Mutation, Write
from tidegate.spanner_simulator.core.rows.transactions import Transaction
from tidegate.spanner_simulator.core.schema.ddl import parse_ddl
from tidegate.spanner_simulator.errors import Code, SpannerError

HEARTBEAT_US = 40
DDL = (
    "CREATE TABLE A (K INT64 NOT NULL, V INT64) PRIMARY KEY (K)",
    "CREATE TABLE B (K INT64 NOT NULL, V INT64) PRIMARY KEY (K DESC)",
    "CREATE CHANGE STREAM S FOR A, B",
)


@dataclass
class Reading:
    """One stream partition as its reader sees it."""

    token: str
    start_us: int
    parents: set[str]
    is_finished: bool = False
    position: Position | None = None
    last_us: int = 0
    heartbeat_us: int = 0
    children: list[str] = field(default_factory=list)


class World:
    """A database, a random history on it, and a reader that obeys the rules."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now_us = 1_000
        self.database = Database("d", random.Random(seed + 1), DatabaseSettings(3, 0.5))
        self.database.apply_ddl([parse_ddl(one) for one in DDL], now_us=self.now_us)
        self.state = self.database.streams.state("S")
        self.open: list[Transaction] = []
        self.out: list[DataChangeRecord] = []
        self.readings: dict[str, Reading] = {}
        self.now_us += 5
        for row in initial_rows(self.state.partitions, self.now_us * 1000):
            token = row.children[0].token
            self.readings[token] = Reading(token, self.now_us, set())

    def step(self) -> None:
        self.now_us += self.chance.choice([0, 0, 1, 1, 5, 50])
        acts = [self.commit] * 5 + [self.begin] * 2 + [self.change] * 2 + [self.read] * 3
        self.chance.choice(acts)()

    def begin(self) -> None:
        self.open.append(self.database.begin())

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
        return Write(kind, table, ("K", "V"), ([key, value],))  # type: ignore[arg-type]

    def change(self) -> None:
        live = self.state.partitions.live
        index = self.chance.randrange(len(live))
        verb = self.chance.choice(["split", "merge", "move"])
        try:
            match verb:
                case "split":
                    self.database.streams.split("S", now_us=self.now_us, token=live[index].token)
                case "merge" if len(live) > 1:
                    pair = live[max(0, index - 1) :][:2]
                    tokens = [one.token for one in pair]
                    self.database.streams.merge("S", now_us=self.now_us, tokens=tokens)
                case _:
                    self.database.streams.move("S", now_us=self.now_us, token=live[index].token)
        except SpannerError as error:
            # Too narrow to split; anything else is a fault of the simulator.
            if error.code is not Code.FAILED_PRECONDITION:
                raise

    def read(self) -> None:
        for reading in list(self.readings.values()):
            if self.may_read(reading) and self.chance.random() < 0.6:
                self.poll(reading)

    def may_read(self, reading: Reading) -> bool:
        parents = [self.readings.get(parent) for parent in reading.parents]
        return not reading.is_finished and all(one and one.is_finished for one in parents)

    def poll(self, reading: Reading) -> None:
        """One query: opened (or resumed) now, polled once, cut off anywhere."""
        query = PartitionQuery(
            self.state.partitions.by_token[reading.token],
            self.database.clock,
            start_ns=reading.start_us * 1000,
            end_ns=None,
            heartbeat_us=HEARTBEAT_US,
            opened_at_us=self.now_us - HEARTBEAT_US,
            resume=reading.position,
            separate_children=reading.token < "m",
        )
        position = query.position
        step = query.poll(self.now_us)
        rows = [
            *query.partition.records.span(step.data.start, step.data.stop),
            *step.rows,
        ]
        cut = self.chance.randint(0, len(rows))
        is_whole = cut == len(rows)
        for row in rows[:cut]:
            position = position.after(row)
            match row:
                case DataChangeRecord():
                    assert row.commit_timestamp_us > reading.heartbeat_us
                    assert row.commit_timestamp_us >= max(reading.last_us, reading.start_us)
                    reading.last_us = row.commit_timestamp_us
                    self.out.append(row)
                case HeartbeatRecord():
                    at_us = row.timestamp_ns // 1000
                    assert at_us >= max(reading.last_us, reading.heartbeat_us)
                    reading.heartbeat_us = at_us
                case ChildPartitionsRecord():
                    self.children(reading, row)
        reading.position = position
        reading.is_finished = step.is_finished and is_whole

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
        """Read on until every stream partition is finished or quiet."""
        for _ in range(10_000):
            self.now_us += HEARTBEAT_US
            before = (len(self.out), len(self.readings))
            for reading in list(self.readings.values()):
                if self.may_read(reading):
                    self.poll(reading)
            live = {one.token for one in self.state.partitions.live}
            left = {one.token for one in self.readings.values() if not one.is_finished}
            is_quiet = left == live and before == (len(self.out), len(self.readings))
            if is_quiet and all(self.is_read(token) for token in live):
                return
        raise AssertionError("the readers never caught up")

    def is_read(self, token: str) -> bool:
        position = self.readings[token].position
        records = self.state.partitions.by_token[token].records
        return position is not None and position.data_index == records.end


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_reading_by_the_rules_gives_each_change_once_and_each_key_in_order(seed: int) -> None:
    world = World(seed)
    for _ in range(120):
        world.step()
    world.drain()
    committed = [one.as_json() for one in world.state.log.transactions]
    expected = [
        (
            (one["commit_timestamp_us"], one["server_transaction_id"], change["record_sequence"]),
            (change["mod_number"], change["table"], change["mod_type"]),
            (change["keys"], change["new_values"], change["old_values"]),
        )
        for one in committed
        for change in one["changes"]
    ]
    arrived = [
        (
            (row.commit_timestamp_us, row.server_transaction_id, row.record_sequence),
            (number, row.table_name, row.mod_type),
            (mod.keys, mod.new_values, mod.old_values),
        )
        for row in world.out
        for number, mod in enumerate(row.mods)
    ]

    by_place = sorted(arrived, key=lambda one: (one[0], one[1][0]))
    assert by_place == sorted(expected, key=lambda one: (one[0], one[1][0]))
    assert len({(one[0], one[1][0]) for one in arrived}) == len(arrived)
    for key in {(one[1][1], str(one[2][0])) for one in arrived}:
        places = [(one[0], one[1][0]) for one in arrived if (one[1][1], str(one[2][0])) == key]
        assert places == sorted(places)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_every_transaction_counts_its_own_records_right(seed: int) -> None:
    world = World(seed)
    for _ in range(120):
        world.step()
    records: dict[str, list[tuple[str, DataChangeRecord]]] = {}
    for token, partition in world.state.partitions.by_token.items():
        for record in partition.records:
            records.setdefault(record.server_transaction_id, []).append((token, record))

    for found in records.values():
        tokens = {token for token, _ in found}
        sequences = sorted(record.record_sequence for _, record in found)
        assert len(set(sequences)) == len(sequences)
        for token, record in found:
            mine = [one.record_sequence for where, one in found if where == token]
            assert record.number_of_records_in_transaction == len(found)
            assert record.number_of_partitions_in_transaction == len(tokens)
            is_last = record.record_sequence == max(mine)
            assert record.is_last_record_in_transaction_in_partition == is_last
