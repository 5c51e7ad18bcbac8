"""The initial query runs until its end is proved; then the stream is opened, once."""

from __future__ import annotations

import pytest

from tests.unit.producer.core.conftest import SLOTS, START_US, Bench
from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core.lifecycle import PartitionState
from tidegate.producer.core.stream_partition import StreamPartition
from tidegate.producer.errors import InitialQueryChange, QueryInterrupted
from tidegate.producer.messages import FORM_RECORD, ChangeMessage, ParkedChange, PublishableRecord
from tidegate.producer.records import (
    ChildPartitionsRecord,
    HeartbeatRecord,
    PartitionEndRecord,
    PartitionEventRecord,
)
from tidegate.schemas.progress import ChildPartition, PartitionFinished, StreamStarted
from tidegate.schemas.topics import ROOT_TOKEN


@pytest.fixture
def opening(bench):
    """Return the opening of a worker whose initial query runs."""
    bench.own(*range(SLOTS))
    return bench.worker._opening


def test_the_initial_query_starts_where_the_stream_does(bench, opening):
    assert bench.queries[ROOT_TOKEN].start_ns == START_US * 1000
    assert opening.root.state is PartitionState.RUNNING


@pytest.mark.rule("spanner-initial-token")
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


def test_a_lost_slot_stops_it_and_what_it_held_is_released_once(bench, opening):
    bench.returns(ROOT_TOKEN, bench.heartbeat(START_US + 10))
    bench.returns(ROOT_TOKEN, bench.children("a", start_us=START_US))
    bench.give(on.SlotsLost((0,)))

    assert opening.root is None
    assert ROOT_TOKEN not in bench.queries
    released = [one for one in bench.effects if isinstance(one, do.ReleaseBudget)]
    assert released == [do.ReleaseBudget(((ROOT_TOKEN, 100),))] * 2


AT_US = START_US + 10
CHANGE = PublishableRecord(
    AT_US, "tx", "1", (ChangeMessage("p.t", b"k", b"v", b"o", b"I", b"origin"),)
)
PARKED = PublishableRecord(
    AT_US, "tx", "1", (), parked=(
        ParkedChange("p.t", b"k", b"o", b"I", b"{}", FORM_RECORD, "SchemaError", "", ""),
    ),
)  # fmt: skip


@pytest.mark.rule("spanner-initial-changes")
@pytest.mark.parametrize(
    "item", [CHANGE, PARKED, PartitionEventRecord(AT_US * 1000, "1", ("a",), ("b",))],
    ids=["a change", "a parked change", "a move"],
)  # fmt: skip
def test_what_no_stream_partition_would_return_again_is_an_error(bench, opening, item):
    """Its time is before their start."""
    bench.returns(ROOT_TOKEN, item, bench.children("a", start_us=START_US + 20))

    (stopped,) = bench.stopped
    assert isinstance(stopped.error, InitialQueryChange)
    assert stopped.error.fields["commit_timestamp_us"] == AT_US
    assert stopped.error.exit_code == 2
    assert bench.bodies(StreamStarted) == []


def test_a_stream_that_begins_after_such_a_change_is_opened(log):
    bench = Bench(log)
    bench.own(*range(SLOTS))
    bench.returns(ROOT_TOKEN, CHANGE, bench.children("a", start_us=START_US + 20))
    assert "setting start" in bench.stopped[0].error.hint
    assert log.data == []

    later = Bench(log, name="w2", start_us=AT_US + 1)
    later.own(*range(SLOTS))
    assert later.queries[ROOT_TOKEN].start_ns == (AT_US + 1) * 1000
    later.returns(ROOT_TOKEN, later.children("a", start_us=AT_US + 1))
    later.ends(ROOT_TOKEN)
    later.read()
    (started,) = later.bodies(StreamStarted)
    assert [child.token for child in started.children] == ["a"]


@pytest.mark.rule("spanner-initial-changes")
@pytest.mark.parametrize("end_ns", [None, (START_US + 5) * 1000])
def test_what_moves_other_stream_partitions_does_not_move_the_start(end_ns):
    """A later attempt that began elsewhere would have stream partitions of a later start."""
    filtered = PublishableRecord(AT_US, "tx", "1", (), filtered=1)
    others = [HeartbeatRecord(AT_US * 1000), filtered, PartitionEndRecord(AT_US * 1000, "1")]
    child = ChildPartition("a", (), START_US * 1000)
    root = StreamPartition(ChildPartition(ROOT_TOKEN, (), START_US * 1000))
    assert root.start_query(1) == START_US * 1000
    assert not root.add_items([*others], 1, end_ns=end_ns)
    root.fail_query(0)
    assert root.start_query(2) == START_US * 1000
    named = ChildPartitionsRecord(START_US * 1000, "0", (child,))
    assert not root.add_items([named, *others], 1, end_ns=end_ns)
    assert root.state is PartitionState.RUNNING
    assert root.end_query(0)
    assert root.publication().finish == (START_US * 1000, (child,))


@pytest.mark.rule("spanner-equal-queries")
def test_the_recorded_end_holds_for_a_worker_with_another_setting(make_bench):
    first = make_bench(name="w1", end_ns=(START_US + 100) * 1000)
    first.open_stream("a")
    first.later()
    (started,) = first.bodies(StreamStarted)
    heir = make_bench(name="w2", end_ns=(START_US + 900) * 1000)
    heir.own(*range(SLOTS))

    assert started.end_ns == (START_US + 100) * 1000
    assert heir.queries["a"].end_ns is None  # Spanner is not asked for the end
    heir.returns("a", heir.heartbeat(START_US + 101))
    heir.later()
    (marker,) = heir.bodies(PartitionFinished)
    assert marker.end_ns == started.end_ns
