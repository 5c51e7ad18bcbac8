"""The initial query runs until its end is proved; then the stream is opened, once, as recorded."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.unit.producer.core.conftest import SLOTS, START_US, Bench, parked_change
from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core import stream_opening
from tidegate.producer.core.lifecycle import PartitionState
from tidegate.producer.core.stream_identity import StreamIdentity, require_settings
from tidegate.producer.core.stream_opening import InitialQuery, StreamStartSearch
from tidegate.producer.errors import InitialQueryChange, QueryInterrupted, StreamChangedError
from tidegate.producer.messages import PublishableRecord
from tidegate.producer.records import (
    ChildPartitionsRecord,
    HeartbeatRecord,
    PartitionEndRecord,
    PartitionEventRecord,
)
from tidegate.schemas.progress import (
    ChildPartition,
    DataTopic,
    PartitionFinished,
    StreamStarted,
    TimestampForm,
)
from tidegate.schemas.topics import ROOT_TOKEN


@pytest.fixture
def opening(bench):
    bench.own(*range(SLOTS))
    return bench.worker._opening


@pytest.mark.rule("spanner-initial-token")
def test_an_end_without_children_opens_nothing(bench, opening):
    assert bench.queries[ROOT_TOKEN].start_ns == START_US * 1000
    bench.ends(ROOT_TOKEN)
    bench.later()
    assert bench.bodies(StreamStarted) == []
    assert bench.worker.counters.counts["unproven_finish"] == 1
    query = bench.queries[ROOT_TOKEN]
    bench.fails(ROOT_TOKEN, QueryInterrupted("gone"))
    assert ROOT_TOKEN not in bench.queries
    bench.later()
    assert bench.queries[ROOT_TOKEN].query_id > query.query_id


def test_a_lost_slot_stops_it_and_what_it_held_is_released_once(bench, opening):
    bench.returns(ROOT_TOKEN, bench.heartbeat(START_US + 10))
    bench.returns(ROOT_TOKEN, bench.children("a", start_us=START_US))
    bench.give(on.SlotsLost((0,)))
    assert opening.root is None
    assert ROOT_TOKEN not in bench.queries
    released = [effect for effect in bench.effects if isinstance(effect, do.ReleaseBudget)]
    assert released == [do.ReleaseBudget(((ROOT_TOKEN, 100),))] * 2


AT_US = START_US + 10
CHANGE = Bench.change(AT_US)
PARKED = PublishableRecord(AT_US, "tx", "1", (), (parked_change(b"o", topic="p.t"),))


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


def test_a_stream_that_begins_after_such_a_change_is_opened(bench, opening, log):
    bench.returns(ROOT_TOKEN, CHANGE, bench.children("a", start_us=START_US + 20))
    assert "setting start" in bench.stopped[0].error.hint
    assert log.data == []
    later = bench.successor(start_us=AT_US + 1)
    assert later.queries[ROOT_TOKEN].start_ns == (AT_US + 1) * 1000
    later.returns(ROOT_TOKEN, later.children("a", start_us=AT_US + 1))
    later.ends(ROOT_TOKEN)
    later.read()
    (started,) = later.bodies(StreamStarted)
    assert [child.token for child in started.children] == ["a"]
    assert later.worker._opening.root is None


@pytest.mark.rule("spanner-initial-changes")
@pytest.mark.parametrize("end_ns", [None, (START_US + 5) * 1000])
def test_what_moves_other_stream_partitions_does_not_move_the_start(end_ns):
    """A later attempt that began elsewhere would have stream partitions of a later start."""
    filtered = PublishableRecord(AT_US, "tx", "1", (), filtered=1)
    others = [HeartbeatRecord(AT_US * 1000), filtered, PartitionEndRecord(AT_US * 1000, "1")]
    child = ChildPartition("a", (), START_US * 1000)
    root = InitialQuery(ChildPartition(ROOT_TOKEN, (), START_US * 1000))
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
    heir = first.successor(end_ns=(START_US + 900) * 1000)
    assert started.end_ns == (START_US + 100) * 1000
    assert heir.queries["a"].end_ns is None, "Spanner is not asked for the end"
    heir.returns("a", heir.heartbeat(START_US + 101))
    heir.later()
    (marker,) = heir.bodies(PartitionFinished)
    assert marker.end_ns == started.end_ns


def test_only_a_slot_that_had_an_owner_starts_a_search_that_decides():
    """The record may stand behind what the first search had read."""
    new, known = (SimpleNamespace(proves_stream_start=proves) for proves in (False, True))
    patience_us, search = stream_opening._PATIENCE_US, StreamStartSearch()
    assert search.begin() == [do.FindStreamStart(1)]
    assert search.begin() == []
    assert search.poll([new], now_us=0) == []
    assert search.poll([new, known], now_us=10 * patience_us) == []
    assert search.poll([new], now_us=11 * patience_us - 1) == []
    assert not search.is_decided_by(1)
    assert search.poll([new], now_us=11 * patience_us) == [do.FindStreamStart(2)]
    assert search.is_decided_by(2)
    assert not search.is_decided_by(1)
    assert search.poll([known], now_us=20 * patience_us) == []


DATA_TOPIC = DataTopic("bank.accounts", "id-1", 3, 7)
IDENTITY = StreamIdentity(
    stream="db/changeStreams/s",
    dialect="GOOGLE_STANDARD_SQL",
    group="bank-fleet",
    slots=16,
    progress_topic_id="id-0",
    topics=(DATA_TOPIC,),
    filters=("exclude_insert=true",),
)
RECORDED = IDENTITY.started(start_ns=5, end_ns=9, children=(ChildPartition("a", (), 5),))


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"stream": "other"}, "stream: recorded 'db/changeStreams/s', now 'other'"),
        ({"group": "x", "slots": 8}, "group: recorded 'bank-fleet', now 'x'; slots: .* 16, now 8"),
        ({"progress_topic_id": "id-9"}, "progress_topic_id: recorded 'id-0', now 'id-9'"),
        *[
            ({"topics": (replace(DATA_TOPIC, **topic),)}, r"topic: recorded .*bank\.accounts")
            for topic in ({"topic_id": "id-2"}, {"topic_partitions": 6}, {"key_schema_id": 8})
        ],
        ({"filters": ()}, None),
        ({"topics": (DATA_TOPIC, DataTopic("bank.new", "id-3", 3, 9))}, None),
        ({"topics": ()}, None),
    ],
)
def test_a_difference_of_the_stream_is_named_with_both_values(changed, text):
    now = replace(IDENTITY, **changed)
    if text is None:
        now.require(RECORDED)
    else:
        with pytest.raises(StreamChangedError, match=text):
            now.require(RECORDED)


@pytest.mark.parametrize(
    ("recorded", "now"),
    [(TimestampForm.MICROS, TimestampForm.STRING), (TimestampForm.STRING, TimestampForm.MICROS)],
)
def test_another_form_of_timestamps_is_named_as_the_setting_has_it(recorded, now):
    text = f"timestamps: recorded '{recorded.lower()}', now '{now.lower()}'"
    with pytest.raises(StreamChangedError, match=text):
        replace(IDENTITY, timestamps=now).require(replace(RECORDED, timestamps=recorded))
    with pytest.raises(StreamChangedError, match=text):
        require_settings(
            replace(RECORDED, timestamps=recorded), stream=IDENTITY.stream, timestamps=now
        )
    replace(IDENTITY, timestamps=now).require(
        replace(IDENTITY, timestamps=now).started(start_ns=5, end_ns=None, children=())
    )


def filtered(*filters):
    return replace(IDENTITY, filters=filters)


TEMPLATE = "producer.topic_template={prefix}-{table}"


@pytest.mark.parametrize(
    ("before", "now", "text"),
    [
        ("producer.tables=a", None, "filter: recorded tables=a, now without it"),
        (None, "producer.tables=a", "filter: recorded without tables=a, now with it"),
        (TEMPLATE, None, r"topic_template: recorded '{prefix}-{table}', now '{prefix}\.{table}'"),
        (None, TEMPLATE, r"topic_template: recorded '{prefix}\.{table}', now '{prefix}-{table}'"),
        ("producer.tombstones=true", None, "tombstones: recorded 'true', now 'false'"),
        ("producer.envelope=flat", None, "envelope: recorded 'flat', now 'tidegate'"),
        ("producer.envelope=later", None, "envelope: recorded 'later', now 'tidegate'"),
        ("producer.value_format=json", None, "value_format: recorded 'json', now 'avro'"),
        ("producer.key_format=json", None, "key_format: recorded 'json', now 'avro'"),
    ],
)
def test_another_filter_is_named(before, now, text):
    before, now = ((one,) if one else () for one in (before, now))
    recorded = filtered(*before).started(start_ns=5, end_ns=None, children=())
    with pytest.raises(StreamChangedError, match=text):
        filtered(*now).require(recorded)
    with pytest.raises(StreamChangedError, match=text):
        require_settings(
            recorded, stream=IDENTITY.stream, timestamps=IDENTITY.timestamps, filters=now
        )
