"""One contract for the change streams in memory and for a real one over gRPC; see the cases."""

from __future__ import annotations

from collections import defaultdict
from random import Random

import pytest

from spanner_simulator import Simulator
from tests.reading import decoded
from tests.simulation.contract_change_stream import BOUNDED_CASES, CASES, Turn
from tests.simulation.spanner import QueryDone, SimSpanner, StreamQuery
from tests.simulation.tables import SimTables
from tidegate.producer.description import GOOGLE_SQL, IMMUTABLE_KEY_RANGE
from tidegate.producer.memory.change_stream import MemoryChangeStream
from tidegate.producer.memory.clock import ManualClock
from tidegate.producer.records import DataChangeRecord
from tidegate.producer.spanner.channel import SpannerChannels
from tidegate.producer.spanner.forms import form_of
from tidegate.producer.spanner.stream import SpannerChangeStream
from tidegate.schemas.topics import TopicNames

ALL = (*CASES, *BOUNDED_CASES)
BEGIN_US = 1_700_000_000_000_000


class MemoryStage:
    """The stream that a test of users' own appends to."""

    def __init__(self, tasks):
        self._tasks = tasks
        self._clock = ManualClock(BEGIN_US)
        self.start_ns = BEGIN_US * 1000
        self._stream = MemoryChangeStream(
            "p0", start_ns=self.start_ns, clock=self._clock, tasks=tasks
        )
        self._live = ["p0"]
        self._truth = defaultdict(list)
        self._number = 0

    def _next(self):
        self._number += 1
        self._clock.advance(1_000)
        return self._clock.wall_us() * 1000

    def live(self):
        return tuple(self._live)

    def truth(self):
        return self._truth

    def commit(self):
        at_ns = self._next()
        token = self._live[self._number % len(self._live)]
        record = DataChangeRecord(
            at_ns, "00000000", f"t{self._number}", True, "Users", (), (), "INSERT",
            "NEW_VALUES", 1, 1, "", False,
        )  # fmt: skip
        self._stream.append(token, record)
        self._truth[token].append(at_ns)

    def split(self):
        return self._turn((self._live.pop(),), 2)

    def merge(self):
        return self._turn((self._live.pop(), self._live.pop()), 1)

    def _turn(self, parents, count):
        at_ns = self._next()
        children = tuple(f"p{self._number}-{n}" for n in range(count))
        self._stream.replace(*parents, children=children, at_ns=at_ns)
        self._live += children
        return Turn(parents, children, at_ns)

    def query(self, token, start_ns, end_ns=None):
        query = self._stream.query(token=token, start_ns=start_ns, end_ns=end_ns, heartbeat_ms=1)
        return decoded(query, self._tasks)


class SimulationStage:
    """The simulation's Spanner, in which a seed chooses keys and cuts."""

    def __init__(self, seed):
        self._random = Random(seed)
        self._now_us = BEGIN_US
        tables = SimTables(["t0"], self._random)
        self._spanner = SimSpanner(self._random, TopicNames("sim"), tables, now_us=BEGIN_US)
        self.start_ns = BEGIN_US * 1000

    def _next_us(self):
        self._now_us += 1_000
        return self._now_us

    def live(self):
        return tuple(part.token for part in self._spanner.active)

    def truth(self):
        return {
            token: [record.commit_timestamp_ns for record in part.records]
            for token, part in self._spanner.parts.items()
        }

    def commit(self):
        self._spanner.commit(self._next_us())

    def split(self):
        return self._turn(lambda parents, children: len(children) == 2)

    def merge(self):
        return self._turn(lambda parents, children: len(parents) == 2)

    def _turn(self, is_wanted):
        while True:
            before = set(self.live())
            self._spanner.churn(self._next_us())
            facts = self._spanner.facts()
            parents = tuple(before - set(self.live()))
            children = tuple(set(self.live()) - before)
            if is_wanted(parents, children):
                return Turn(parents, children, facts[children[0]].start_us * 1000)

    def query(self, token, start_ns, end_ns=None):
        assert end_ns is None
        query = StreamQuery(self._spanner, token, start_ns // 1000, self._random, truncates=False)
        while True:
            try:
                items = query.next(self._next_us())
            except QueryDone:
                return
            if items:
                yield items


class SimulatorStage:
    """Spanner's simulator, read by the adapter that reads the service."""

    def __init__(self, spanner, name, tasks):
        self._tasks = tasks
        table = "CREATE TABLE Users (Id INT64) PRIMARY KEY (Id)"
        stream = "CREATE CHANGE STREAM Feed FOR Users"
        spanner.create_database(name, ddl=[table, stream])
        self._spanner, self._name, self._number = spanner, name, 0
        self._channels = SpannerChannels(
            database=f"projects/test-project/instances/test-instance/databases/{name}",
            emulator_host=spanner.grpc_address,
        )
        self._stream = SpannerChangeStream(
            self._channels, form_of(GOOGLE_SQL, IMMUTABLE_KEY_RANGE, "Feed")
        )
        self._table = spanner.client().instance("test-instance").database(name)
        self._queries = []
        self.start_ns = (
            max(one["start_timestamp_us"] for one in spanner.stream_partitions(name, "Feed")) * 1000
        )

    def live(self):
        return tuple(one["token"] for one in self._spanner.stream_partitions(self._name, "Feed"))

    def truth(self):
        times = defaultdict(list)
        for one in self._spanner.commit_log(self._name, "Feed"):
            for token in one["stream_partition_tokens"]:
                times[token].append(one["commit_timestamp_us"] * 1000)
        return times

    def commit(self):
        self._number += 1
        key = self._number if self._number % 2 else -self._number
        with self._table.batch() as batch:
            batch.insert("Users", ["Id"], [[key]])

    def split(self):
        return self._turned(self._spanner.split(self._name, "Feed", table="Users", key=["0"]))

    def merge(self):
        return self._turned(self._spanner.merge(self._name, "Feed"))

    def _turned(self, turn):
        children = tuple(child["token"] for child in turn["children"])
        return Turn(tuple(turn["parents"]), children, turn["start_timestamp_us"] * 1000)

    def query(self, token, start_ns, end_ns=None):
        query = self._stream.query(
            token=token, start_ns=start_ns, end_ns=end_ns, heartbeat_ms=1_000
        )
        self._queries.append(query)
        return decoded(query, self._tasks)

    def close(self):
        for query in self._queries:
            query.cancel()
        self._channels.close()


@pytest.fixture(scope="module")
def simulator():
    with Simulator(seed=7, stream_partitions=1) as running:
        yield running


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.__name__)
def test_the_stream_in_memory(case, tasks):
    case(MemoryStage(tasks))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_simulations_spanner(case, seed):
    case(SimulationStage(seed))


@pytest.mark.integration
@pytest.mark.parametrize("case", ALL, ids=lambda case: case.__name__)
def test_a_stream_over_grpc(case, simulator, tasks):
    stage = SimulatorStage(simulator, f"db-{ALL.index(case)}", tasks)
    try:
        case(stage)
    finally:
        stage.close()
