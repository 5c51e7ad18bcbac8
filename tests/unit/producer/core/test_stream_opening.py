"""The initial query runs until its end is proved; then the stream is opened, once."""

from __future__ import annotations

import pytest

from tests.unit.producer.core.conftest import SLOTS, START_US
from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core.lifecycle import PartitionState
from tidegate.producer.errors import QueryInterrupted
from tidegate.schemas.progress import StreamStarted
from tidegate.schemas.topics import ROOT_TOKEN


@pytest.fixture
def opening(bench):
    """Return the opening of a worker whose initial query runs."""
    bench.own(*range(SLOTS))
    return bench.worker._opening


def test_the_initial_query_starts_where_the_stream_does(bench, opening):
    assert bench.queries[ROOT_TOKEN].start_ns == START_US * 1000
    assert opening.root.state is PartitionState.RUNNING


def test_an_end_without_children_opens_nothing(bench, opening):
    bench.ends(ROOT_TOKEN)
    bench.later()

    assert bench.bodies(StreamStarted) == []
    assert ROOT_TOKEN in bench.queries


def test_a_failure_is_repeated(bench, opening):
    query = bench.queries.pop(ROOT_TOKEN)
    bench.give(on.QueryFailed(ROOT_TOKEN, query.query_id, QueryInterrupted("gone")))
    assert ROOT_TOKEN not in bench.queries

    bench.later()
    assert bench.queries[ROOT_TOKEN].query_id > query.query_id


def test_its_children_are_those_of_the_stream_and_the_query_is_over(bench, opening):
    bench.returns(ROOT_TOKEN, bench.children("a", "b", start_us=START_US))
    bench.ends(ROOT_TOKEN)
    bench.read()

    (started,) = bench.bodies(StreamStarted)
    assert [child.token for child in started.children] == ["a", "b"]
    assert opening.root is None


def test_a_lost_slot_stops_it_and_releases_what_it_held(bench, opening):
    bench.returns(ROOT_TOKEN, bench.heartbeat(START_US + 10))
    effects = bench.give(on.SlotsLost((0,)))

    assert opening.root is None
    assert ROOT_TOKEN not in bench.queries
    assert do.ReleaseBudget(((ROOT_TOKEN, 100),)) in effects
