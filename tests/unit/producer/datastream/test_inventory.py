"""Objects of the events that were added, as the newest of them have them."""

import json
import random

import pytest

from tests.datastream_files import SOURCES, backfill, history, json_bytes
from tidegate.producer.datastream.errors import MixedSources
from tidegate.producer.datastream.event import parse_event
from tidegate.producer.datastream.inventory import Inventory
from tidegate.producer.datastream.position import Position
from tidegate.producer.datastream.unified_types import PayloadField
from tidegate.producer.source_objects import SourceField

FIELDS = [PayloadField("id", "LONG", nullable=True), PayloadField("note", "STRING", nullable=True)]


def events(records, file="a.avro"):
    return [parse_event(one, Position(file, n)) for n, one in enumerate(records, 1)]


@pytest.fixture
def inventory():
    return Inventory()


@pytest.mark.rule("datastream-discover")
@pytest.mark.parametrize("source", SOURCES)
def test_an_object_has_fields_key_and_counts(inventory, source):
    rng = random.Random(7)
    inventory.add(FIELDS, events(history(source, rng, 5)))
    inventory.add(FIELDS, events(backfill(source, rng, 3)))
    (found,) = inventory.objects()
    assert inventory.source.value == source
    assert inventory.streams == {"projects/1/locations/us-central1/streams/orders"}
    assert found.fields == (
        SourceField("id", "LONG", nullable=True, key_position=1),
        SourceField("note", "STRING", nullable=True),
    )
    assert found.key == ("id",)
    assert found.files_read == 2
    assert sum(found.events.values()) == 8
    assert not inventory.types_are_inferred


@pytest.mark.rule("datastream-object-names")
def test_names_are_those_of_the_source_where_datastreams_are_ambiguous(inventory):
    records = history("mysql", random.Random(7), 2)
    records[0]["source_metadata"].update(database="a", table="b_c")
    records[1]["source_metadata"].update(database="a_b", table="c")
    for one in records:
        one["object"] = "a_b_c"
    inventory.add(FIELDS, events(records))
    assert [one.name for one in inventory.objects()] == ["a.b_c", "a_b.c"]


@pytest.mark.rule("datastream-discover")
@pytest.mark.parametrize("is_newest_first", [True, False])
def test_the_newest_event_decides_fields_and_key(inventory, is_newest_first):
    old, new = history("mysql", random.Random(7), 2)
    new["source_metadata"]["primary_keys"] = ["note", "id"]
    files = [(FIELDS[:1], events([old])), (FIELDS, events([new]))]
    for fields, found in reversed(files) if is_newest_first else files:
        inventory.add(fields, found)
    assert inventory.objects()[0].key == ("note", "id")
    assert len(inventory.objects()[0].fields) == 2


@pytest.mark.rule("datastream-json-values")
def test_types_of_json_are_inferred_and_it_is_said(inventory):
    records = [json.loads(line) for line in json_bytes(history("mysql", random.Random(7), 2))
               .splitlines()]  # fmt: skip
    records[0]["payload"] = {"id": 1, "note": None, "flag": True, "doc": {"a": 1}, "mixed": 1}
    records[1]["payload"] = {"id": 2, "note": "x", "mixed": "1"}
    inventory.add(None, events(records))
    assert inventory.types_are_inferred
    assert inventory.objects()[0].fields == (
        SourceField("id", "LONG", nullable=None, key_position=1),
        SourceField("note", "STRING", nullable=True),
        SourceField("flag", "BOOLEAN", nullable=None),
        SourceField("doc", "JSON", nullable=None),
        SourceField("mixed", "LONG or STRING", nullable=None),
    )


@pytest.mark.rule("datastream-one-source")
def test_two_kinds_of_sources_are_refused(inventory):
    inventory.add(FIELDS, events(history("mysql", random.Random(7), 1)))
    with pytest.raises(MixedSources, match=r"mysql and of oracle.*b\.avro.*record=1"):
        inventory.add(FIELDS, events(history("oracle", random.Random(7), 1), "b.avro"))


@pytest.mark.rule("datastream-one-source")
def test_two_logs_of_mysql_are_refused(inventory):
    records = history("mysql", random.Random(7), 2)
    records[1]["source_metadata"]["log_file"] = "replica-bin.000001"
    del records[1]["sort_keys"]
    with pytest.raises(MixedSources, match=r"two binary logs.*mysql-bin.*replica-bin"):
        inventory.add(FIELDS, events(records))


def test_files_without_events_are_no_objects(inventory):
    inventory.add(FIELDS, [])
    inventory.add(None, [])
    assert inventory.objects() == ()
    assert not inventory.types_are_inferred
