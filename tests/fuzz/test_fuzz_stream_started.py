"""What the first record of an epoch may hold: this stream, or a StreamChangedError."""

from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.producer.core.stream_identity import StreamIdentity
from tidegate.producer.errors import StreamChangedError
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.progress import ChildPartition, DataTopic, ProgressRecord, StreamStarted
from tidegate.schemas.progress_codec import decode_record, encode_record

TOPICS = (DataTopic("bank.a", "id-a", 6, 1), DataTopic("bank.b", "id-b", 6, 2))
IDENTITY = StreamIdentity(
    stream="projects/p/instances/i/databases/d/changeStreams/S",
    dialect="GOOGLE_STANDARD_SQL",
    group="bank-fleet",
    slots=16,
    progress_topic_id="id",
    topics=TOPICS,
)
OWN = IDENTITY.started(start_ns=1, end_ns=None, children=(ChildPartition("c", (), 1),))
COMPARED = ("stream", "dialect", "group", "slots", "progress_topic_id")

TEXT = st.text(max_size=5)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TOPIC = st.sampled_from(TOPICS) | st.builds(
    DataTopic, st.sampled_from(["bank.a", "bank.b", "bank.c"]) | TEXT, TEXT, INT32, INT32
)


def own_or(name, other):
    return st.just(getattr(OWN, name)) | other


STARTED = st.builds(
    StreamStarted,
    stream=own_or("stream", TEXT),
    dialect=own_or("dialect", TEXT),
    start_ns=INT64,
    end_ns=st.none() | INT64,
    group=own_or("group", TEXT),
    slots=own_or("slots", INT32),
    progress_topic_id=own_or("progress_topic_id", TEXT),
    topics=own_or("topics", st.lists(TOPIC, max_size=4).map(tuple)),
    children=st.lists(
        st.builds(ChildPartition, TEXT, st.lists(TEXT, max_size=2).map(tuple), INT64), max_size=3
    ).map(tuple),
    filters=st.lists(TEXT, max_size=2).map(tuple),
)


def is_own(started):
    known = {topic.topic: topic for topic in TOPICS}
    return all(getattr(started, name) == getattr(OWN, name) for name in COMPARED) and all(
        known.get(topic.topic, topic) == topic for topic in started.topics
    )


@given(STARTED)
@example(OWN)
@example(replace(OWN, slots=0))
@example(replace(OWN, topics=(*TOPICS, TOPICS[0])))
@example(replace(OWN, topics=(replace(TOPICS[0], topic_partitions=-1),)))
def test_any_contents(assert_reportable, started):
    try:
        IDENTITY.require(started)
    except StreamChangedError as error:
        assert_reportable(error)
        assert not is_own(started)
    else:
        assert is_own(started)


@given(st.data())
def test_damaged_bytes(damaged, assert_reportable, data):
    whole = encode_record(ProgressRecord("epoch", "worker", OWN))
    try:
        record = decode_record(damaged(data, whole))
    except SchemaError as error:
        assert_reportable(error)
        return
    if not isinstance(record.body, StreamStarted):
        return
    try:
        IDENTITY.require(record.body)
    except StreamChangedError as error:
        assert_reportable(error)
    else:
        assert is_own(record.body)
