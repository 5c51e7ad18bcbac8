"""What must not change for as long as an epoch lasts is compared; the rest is only recorded."""

from dataclasses import replace

import pytest

from tidegate.producer.core.stream_identity import StreamIdentity, require_settings
from tidegate.producer.errors import StreamChangedError
from tidegate.schemas.progress import ChildPartition, DataTopic, TimestampForm

TOPIC = DataTopic("bank.accounts", "id-1", 3, 7)
IDENTITY = StreamIdentity(
    stream="db/changeStreams/s",
    dialect="GOOGLE_STANDARD_SQL",
    group="bank-fleet",
    slots=16,
    progress_topic_id="id-0",
    topics=(TOPIC,),
    filters=("exclude_insert=true",),
)
RECORDED = IDENTITY.started(start_ns=5, end_ns=9, children=(ChildPartition("a", (), 5),))


def test_the_record_holds_the_whole_identity():
    assert (RECORDED.start_ns, RECORDED.end_ns) == (5, 9)
    assert [child.token for child in RECORDED.children] == ["a"]
    assert RECORDED.filters == ("exclude_insert=true",)
    IDENTITY.require(RECORDED)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("stream", "db/changeStreams/other"),
        ("dialect", "POSTGRESQL"),
        ("group", "other-fleet"),
        ("slots", 8),
        ("progress_topic_id", "id-9"),
    ],
)
def test_a_difference_is_named_with_both_values(name, value):
    with pytest.raises(StreamChangedError) as raised:
        replace(IDENTITY, **{name: value}).require(RECORDED)

    assert f"{name}: recorded {getattr(RECORDED, name)!r}, now {value!r}" in str(raised.value)


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


@pytest.mark.parametrize(
    "changed",
    [{"topic_id": "id-2"}, {"topic_partitions": 6}, {"key_schema_id": 8}],
    ids=["re-created", "grown", "other keys"],
)
def test_a_topic_that_changed_is_named(changed):
    with pytest.raises(StreamChangedError, match=r"topic: recorded .*bank\.accounts"):
        replace(IDENTITY, topics=(replace(TOPIC, **changed),)).require(RECORDED)


def test_all_differences_are_reported_together():
    with pytest.raises(StreamChangedError, match=r"group: .*; slots: "):
        replace(IDENTITY, group="x", slots=8).require(RECORDED)


@pytest.mark.parametrize(
    "allowed",
    [
        {"filters": ()},
        {"topics": (TOPIC, DataTopic("bank.new", "id-3", 3, 9))},
        {"topics": ()},
    ],
    ids=["filters altered", "table added", "table dropped"],
)
def test_what_may_change_is_no_difference(allowed):
    replace(IDENTITY, **allowed).require(RECORDED)


def filtered(*filters):
    return replace(IDENTITY, filters=filters)


@pytest.mark.parametrize(
    ("before", "now", "text"),
    [
        (("producer.tables=a",), (), "filter: recorded tables=a, now without it"),
        ((), ("producer.tables=a",), "filter: recorded without tables=a, now with it"),
        (
            ("producer.topic_template={prefix}-{table}",),
            (),
            r"stream: topic_template: recorded '{prefix}-{table}', now '{prefix}\.{table}'\. Use",
        ),
        (
            (),
            ("producer.topic_template={prefix}-{table}",),
            r"topic_template: recorded '{prefix}\.{table}', now '{prefix}-{table}'",
        ),
        (
            ("producer.tombstones=true",),
            (),
            "tombstones: recorded 'true', now 'false'",
        ),
        (("producer.envelope=flat",), (), "envelope: recorded 'flat', now 'tidegate'"),
        ((), ("producer.envelope=flat",), "envelope: recorded 'tidegate', now 'flat'"),
        (("producer.envelope=later",), (), "envelope: recorded 'later', now 'tidegate'"),
        (("producer.value_format=json",), (), "value_format: recorded 'json', now 'avro'"),
        ((), ("producer.value_format=json",), "value_format: recorded 'avro', now 'json'"),
        (("producer.key_format=json",), (), "key_format: recorded 'json', now 'avro'"),
    ],
)
def test_another_filter_is_named(before, now, text):
    recorded = filtered(*before).started(start_ns=5, end_ns=None, children=())
    with pytest.raises(StreamChangedError, match=text):
        filtered(*now).require(recorded)
    with pytest.raises(StreamChangedError, match=text):
        require_settings(
            recorded, stream=IDENTITY.stream, timestamps=IDENTITY.timestamps, filters=now
        )


def test_what_the_change_stream_leaves_out_may_be_altered():
    recorded = filtered("exclude_insert=true", "producer.tables=a")
    started = recorded.started(start_ns=5, end_ns=None, children=())
    filtered("producer.tables=a", "exclude_delete=true").require(started)
