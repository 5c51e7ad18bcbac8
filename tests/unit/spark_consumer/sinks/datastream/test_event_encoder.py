"""An event in a file is the event that `envelope = "datastream"` publishes of the same change."""

from __future__ import annotations

import io
import json
import math
from decimal import Decimal

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.producer.translation.event_reading import (
    FORM,
    KEY,
    read_event,
    translator_of,
    value_of,
)
from tests.unit.producer.translation.test_translator_properties import (
    MODS,
    SEQUENCES,
    TABLE,
    record,
    same,
)
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.output_form import Envelope, ValueFormat
from tidegate.spark_consumer.core.topic_schemas import TopicSchemas
from tidegate.spark_consumer.sinks.datastream.event_encoder import EventEncoder, database_of
from tidegate.spark_consumer.sinks.row_decoding import RowDecoder

VALUE = value_of(Envelope.TIDEGATE)
SCHEMAS = TopicSchemas(
    "t", KEY.schema, VALUE.schema, {1: KEY.schema, VALUE.schema_id: VALUE.schema}
)
OURS, PUBLISHED = (translator_of(one) for one in (Envelope.TIDEGATE, Envelope.DATASTREAM))
IN_JSON = translator_of(Envelope.DATASTREAM, ValueFormat.JSON)
ENCODER = EventEncoder(SCHEMAS, stream=FORM.stream_path)
RECORDS = st.builds(
    record, MODS, st.sampled_from(["INSERT", "UPDATE", "DELETE"]), st.integers(0, 2**53), SEQUENCES
)
NESTED = ("c_JSON", "a_JSON")


def decoded(one):
    """Return a record's changes as a sink decodes them."""
    decoder = RowDecoder(SCHEMAS, release=0)
    return [
        decoder.decoded(
            {
                "topic": message.topic, "topic_partition": 0, "offset": 0, "ordinal": 0,
                "key": message.key, "value": message.value, "order_key": message.order_key,
                "origin": 1,
            }
        )
        for message in OURS.translate(one, token="k").messages
    ]  # fmt: skip


def without_key(event):
    """JSON and PostgreSQL's numeric are other types in the payload, so that its key differs."""
    return {name: value for name, value in event.items() if name != "schema_key"}


def alike(got, meant):
    if isinstance(meant, dict):
        return got.keys() == meant.keys() and all(alike(got[name], meant[name]) for name in meant)
    return same(got, meant)


@settings(max_examples=60)
@given(RECORDS)
def test_in_avro_it_is_the_published_event(one):
    schema = fastavro.parse_schema(ENCODER.schema)
    messages = PUBLISHED.translate(one, token="k").messages
    for change, message in zip(decoded(one), messages, strict=True):
        found = fastavro.schemaless_reader(io.BytesIO(ENCODER.avro(change)), schema, None)
        published = read_event(message, Envelope.DATASTREAM)
        assert list(found) == list(published)
        assert alike(without_key(found), without_key(published))


def exact(text):
    """Return what JSON says: `1e400` is no infinity."""
    return json.loads(text, parse_float=Decimal)


@settings(max_examples=60)
@given(RECORDS)
def test_in_json_it_is_the_published_event(one):
    """But for columns of JSON, which are text here, and the digits of a FLOAT32."""
    messages = IN_JSON.translate(one, token="k").messages
    for change, message in zip(decoded(one), messages, strict=True):
        line = ENCODER.json(change)
        assert line.endswith(b"}\n")
        assert line.count(b"\n") == 1
        found, published = exact(line), exact(message.value)
        row, meant = found.pop("payload"), published.pop("payload")
        assert without_key(found) == without_key(published)
        assert list(row) == list(meant)
        for name, value in meant.items():
            text = row[name]
            if name == "c_JSON" and text is not None:
                assert exact(text) == value
            elif name == "a_JSON" and text is not None:
                assert [None if one is None else exact(one) for one in text] == value
            elif "FLOAT32" in name:
                assert _close(text, value)
            else:
                assert text == value, name


def _close(got, meant):
    """One number of 32 bits may be written with more digits."""
    if isinstance(meant, list):
        return len(got) == len(meant) and all(map(_close, got, meant))
    if isinstance(meant, str) or meant is None:
        return got == meant
    return math.isclose(float(got), float(meant), rel_tol=1e-6, abs_tol=1e-44)


def test_a_files_record_is_called_after_its_object():
    def name_of(table):
        schemas = TopicSchemas(table, KEY.schema, VALUE.schema, {})
        return EventEncoder(schemas, stream=FORM.stream_path).schema["name"]

    assert [name_of(one) for one in ("shop.Items", "t", "9a")] == ["shop_Items", "t", "_9a"]
    assert ENCODER.schema["fields"][-1]["name"] == "payload"
    columns = [one["name"] for one in ENCODER.schema["fields"][-1]["type"]["fields"]]
    assert columns == [column.name for column in TABLE.columns]


def test_the_database_is_in_the_streams_name():
    assert database_of(FORM.stream_path) == "d"
    for other in ("", "datastream/gs://bucket/path", "projects/p/databases/d"):
        with pytest.raises(ConfigError, match="change stream of Spanner"):
            database_of(other)
