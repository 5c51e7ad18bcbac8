"""Nulls of JSON are named in a change wherever the topic has their columns."""

import io
import json
import random

import fastavro
import pytest

from tests.datastream_files import history, json_bytes
from tests.unit.producer.datastream_source.test_known_decimals import Registry, Worker
from tidegate.producer.datastream.event_file import EventFile
from tidegate.producer.datastream_source.event_records import EventRecords, place_of
from tidegate.producer.datastream_source.json_nulls import with_known_nulls
from tidegate.schemas.wire_format import unframe


def record(payload, *, deleted=False):
    (event,) = history("mysql", random.Random(1), 1)
    kind = {"change_type": "DELETE", "is_deleted": True} if deleted else {}
    event["source_metadata"].update(kind)
    line = json.loads(json_bytes([event]))
    data = json.dumps({**line, "payload": {"id": 7, **payload}}).encode() + b"\n"
    (one,) = EventFile("o/a.jsonl", io.BytesIO(data))
    return EventRecords().record_of(one, None, file="0" * 16, release_us=9, place=place_of(7, 2))


def published(worker, one):
    """Return the value of a record's change, and the columns of the row that it names."""
    found = worker.translator.translate_now(one, token="t")
    if found is None:
        found = worker.translator.translate(one, token="t")
    schema_id, body = unframe(found.messages[0].value)
    schema = fastavro.parse_schema(dict(worker.registry.schema(schema_id)))
    value = fastavro.schemaless_reader(io.BytesIO(bytes(body)), schema, None)
    names = value["new_columns"] or value["old_columns"]
    return value, {name for name in names if not name.startswith("_")}


@pytest.mark.rule("datastream-json-nulls")
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("deleted", [False, True])
def test_a_null_is_named_once_its_column_has_had_a_value(restarts, deleted):
    registry = Registry()
    worker = Worker(registry)
    _, names = published(worker, record({"a": None, "b": 1}))
    assert names == {"id", "b"}  # of which type would a be
    _, names = published(worker, record({"a": "x", "b": None}))
    assert names == {"id", "a", "b"}
    if restarts:
        worker = Worker(registry)  # it knows of a, b what the registry has
    for _ in range(2):
        value, names = published(worker, record({"a": None, "b": None}, deleted=deleted))
        assert names == {"id", "a", "b"}
        row = value["old_values" if deleted else "new_values"]
        assert (row["a"], row["b"]) == (None, None)
    value, names = published(worker, record({"a": "y", "c": None}))
    assert names == {"id", "a"}
    assert value["new_values"]["a"] == "y"


def test_what_needs_no_change_is_the_same_record():
    plain = record({"a": 1})
    assert with_known_nulls(plain, ()) is plain
    null = record({"a": None})
    assert with_known_nulls(null, ("a",)) is null
    assert "a" not in with_known_nulls(null, ()).mods[0].new_values
