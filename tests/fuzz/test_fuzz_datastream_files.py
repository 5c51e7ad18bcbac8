"""Datastream's files, damaged in any way: events, or one of this project's errors."""

import gzip
import random
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.datastream_files import SOURCES, avro_bytes, history, json_bytes
from tidegate.producer.datastream.errors import DatastreamError
from tidegate.producer.datastream.event import Event, parse_event
from tidegate.producer.datastream.event_file import EventFile
from tidegate.producer.datastream.position import Position

EVENTS = {source: history(source, random.Random(1), 3) for source in SOURCES}
WHOLE = [
    data
    for source, events in EVENTS.items()
    for data in (
        avro_bytes(source, events),
        avro_bytes(source, events, codec="deflate", per_block=100),
        json_bytes(events),
        gzip.compress(json_bytes(events), mtime=0),
    )
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)


def read(data, assert_reportable):
    try:
        for event in EventFile("a", BytesIO(data)):
            assert isinstance(event, Event)
            assert event.order_key
    except DatastreamError as error:
        assert_reportable(error)
        found = error
    else:
        return
    assert {"file", "record"} <= set(found.fields)


@pytest.mark.rule("datastream-damaged-files")
@given(st.data(), st.sampled_from(WHOLE))
def test_damaged_files(damaged, assert_reportable, data, whole):
    read(damaged(data, whole), assert_reportable)


@given(st.binary(max_size=200), st.sampled_from([b"", b"Obj\x01", b"{", b"\x1f\x8b\x08"]))
def test_any_bytes(assert_reportable, data, start):
    read(start + data, assert_reportable)


@given(st.data(), st.sampled_from(SOURCES))
def test_records_with_any_field_replaced(assert_reportable, data, source):
    record = {**EVENTS[source][0]}
    record["source_metadata"] = {**record["source_metadata"]}
    for _ in range(data.draw(st.integers(1, 3))):
        metadata = record["source_metadata"]
        # An earlier replacement may have made it something else, or empty.
        has_fields = isinstance(metadata, dict) and bool(metadata)
        place = data.draw(st.sampled_from([record, metadata])) if has_fields else record
        place[data.draw(st.sampled_from(sorted(place)))] = data.draw(JSON)
    try:
        event = parse_event(record, Position("a", 1))
    except DatastreamError as error:
        assert_reportable(error)
    else:
        assert isinstance(event.order_key, bytes)
        assert event.key is None or len(event.key) >= 1
