"""Files whose columns change, and nulls of JSON: what is published, under which schema.

Through the translator that workers use, with a registry that refuses what is not backward
compatible.
"""

import io
import json
import random

import fastavro
import pytest

from tests.datastream_files import history, json_bytes, schema_of
from tests.unit.producer.translation.translation_building import Topics, read_framed
from tidegate.producer.datastream.event_file import EventFile
from tidegate.producer.datastream.event_records import EventRecords, place_of
from tidegate.producer.datastream.event_translator import EventTranslator, with_known_nulls
from tidegate.producer.datastream.stream import FilesCatalogue
from tidegate.producer.errors import IncompatibleChange
from tidegate.producer.translation.pipeline import TranslationPipeline
from tidegate.producer.translation.table_refresh import TableRefresher
from tidegate.producer.translation.table_registrar import TableRegistrar
from tidegate.producer.translation.translator import Translator
from tidegate.schemas.change_schema import row_fields
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.topics import TopicNames
from tidegate.schemas.wire_format import unframe

FILE = "0a1b2c3d4e5f6071"


def decimal(precision, scale):
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


NARROW, WIDE = decimal(10, 2), decimal(65, 30)


class Registry(InMemorySchemaRegistry):
    asked = 0

    def versions(self, subject):
        self.asked += 1
        return super().versions(subject)


class Worker:
    """What a worker makes of records; another one with the same registry is one that restarted."""

    def __init__(self, registry, *, parks=False):
        self.registry = registry
        names = TopicNames("shop")
        plain = Translator({}, change_stream="files")
        refresher = TableRefresher(
            plain, FilesCatalogue(), TableRegistrar(names, registry), Topics()
        )
        self.translator = EventTranslator(
            TranslationPipeline(plain, refresher), parks=parks, columns_of=plain.registered_columns
        )

    def publish(self, record):
        """Return the row that is published of a record."""
        translated = self.translator.translate_now(record, token="t")
        if translated is None:
            translated = self.translator.translate(record, token="t")
        if not translated.messages:
            return translated.parked
        row = read_framed(translated.messages[0].value, self.registry.schema)["new_values"]
        return {name: value for name, value in row.items() if not name.startswith("_datastream")}


def record(kind, value, *, key=("long", 7), name="note"):
    """Return the record of an event of a file in which the column has this type of Avro's."""
    event = history("mysql", random.Random(1), 1)[0]
    event["payload"] = {"id": key[1], name: value}
    schema = schema_of("mysql")
    schema["fields"][-1]["type"]["fields"] = [
        {"name": column, "type": ["null", avro_kind], "default": None}
        for column, avro_kind in (("id", key[0]), (name, kind))
    ]
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema(schema), [event])
    file = EventFile("o/a.avro", io.BytesIO(out.getvalue()))
    (read_event,) = file
    return EventRecords().record_of(
        read_event, file.fields, file=FILE, release_us=9, place=place_of(7, 2)
    )


def unscaled(number):
    return number.to_bytes(30, "big", signed=True)


def notes(records, *, restarts=False):
    """Return what is published of a column, by one worker or by one for each record."""
    registry = Registry()
    worker, published_notes = Worker(registry), []
    for change_record in records:
        if restarts:
            worker = Worker(registry)
        published_notes.append(str(worker.publish(change_record)["note"]))
    return published_notes


@pytest.mark.parametrize("restarts", [False, True])
def test_an_added_column_and_files_of_before(restarts):
    registry = Registry()
    worker = Worker(registry)
    for one, row in (
        (record("string", "a"), {"note": "a"}),
        (record("string", "x", name="extra"), {"note": None, "extra": "x"}),
        (record("string", "b"), {"note": "b", "extra": None}),
    ):
        assert worker.publish(one) == {"id": 7, **row}
        if restarts:
            worker = Worker(registry)


@pytest.mark.parametrize("restarts", [False, True])
def test_an_integer_that_got_wider_and_text_that_became_a_decimal(restarts):
    some = [record("int", 5), record("long", 1 << 40), record("int", 6)]
    assert notes(some, restarts=restarts) == ["5", str(1 << 40), "6"]
    some = [record("string", "a"), record(NARROW, unscaled(150)), record("string", "b")]
    assert notes(some, restarts=restarts) == ["a", "1.50", "b"]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_decimal_that_got_wider_and_back_keeps_its_first_type_and_stays_text(restarts):
    kinds = ((NARROW, 150), (WIDE, 25 * 10**28), (NARROW, 350))
    some = [record(kind, unscaled(number)) for kind, number in kinds]
    assert notes(some, restarts=restarts) == ["1.500000000", "0.250000000", "3.500000000"]
    kinds = ((WIDE, 10**30 // 4), (NARROW, 350), (WIDE, 1))
    some = [record(kind, unscaled(number)) for kind, number in kinds]
    assert notes(some, restarts=restarts) == [f"0.25{'0' * 28}", "3.50", f"0.{'0' * 29}1"]


def test_a_wide_decimal_that_its_columns_first_type_does_not_have_is_refused():
    worker = Worker(Registry())
    worker.publish(record(NARROW, unscaled(150)))
    with pytest.raises(SchemaError, match="not representable with 9 fractional digits"):
        worker.publish(record(WIDE, unscaled(1)))
    with pytest.raises(SchemaError, match="not representable with 38 digits"):
        worker.publish(record(WIDE, unscaled(10**60)))
    assert str(worker.publish(record(WIDE, unscaled(10**30)))["note"]) == "1.000000000"


def test_the_registry_is_not_asked_for_each_event_of_such_a_column():
    registry = Registry()
    worker = Worker(registry)
    worker.publish(record(NARROW, unscaled(150)))
    worker.publish(record(WIDE, unscaled(10**30)))
    asked = registry.asked
    for value in (1, 2):
        worker.publish(record(WIDE, unscaled(value * 10**30)))
        worker.publish(record(NARROW, unscaled(value)))
    assert registry.asked == asked


@pytest.mark.parametrize("restarts", [False, True])
def test_another_type_is_refused_with_both_and_the_remedy(restarts):
    for kind, value, before, types in (
        ("long", 5, record("string", "a"), ("STRING", "INT64")),
        ("string", "a", record("long", 5), ("INT64", "STRING")),
        ("long", 5, record(WIDE, unscaled(1)), ("NUMERIC PG_NUMERIC", "INT64")),
        (WIDE, unscaled(1), record("long", 5), ("INT64", "NUMERIC PG_NUMERIC")),
        (NARROW, unscaled(1), record("long", 5), ("INT64", "NUMERIC")),
    ):
        registry = Registry()
        worker = Worker(registry)
        worker.publish(before)
        if restarts:
            worker = Worker(registry)
        with pytest.raises(IncompatibleChange, match="new stream under another prefix") as raised:
            worker.publish(record(kind, value))
        assert raised.value.fields["column"] == "note"
        if not restarts:
            fields = raised.value.fields
            assert (fields["known"], fields["type"]) == types
        assert worker.publish(before)["id"] == 7


def test_a_key_whose_type_changed_is_refused():
    registry = Registry()
    worker = Worker(registry)
    worker.publish(record(NARROW, unscaled(150)))
    for any_worker in (worker, Worker(registry)):
        with pytest.raises(IncompatibleChange):
            any_worker.publish(record(NARROW, unscaled(150), key=("string", "7")))
        with pytest.raises(IncompatibleChange):
            any_worker.publish(record(WIDE, unscaled(150), key=(NARROW, unscaled(7))))
    registry = Registry()
    worker = Worker(registry)
    worker.publish(record("string", "a", key=(NARROW, unscaled(700))))
    for any_worker in (worker, Worker(registry)):
        with pytest.raises(IncompatibleChange):
            any_worker.publish(record("string", "a", key=(WIDE, unscaled(7 * 10**30))))


def test_the_columns_of_metadata_are_added_to_the_topics_of_earlier_versions():
    registry = Registry()
    new = record("string", "a")
    earlier = [column for column in new.columns if column.name not in _LATER]
    (mod,) = new.mods
    values = {name: value for name, value in mod.new_values.items() if name not in _LATER}
    old = new._replace(columns=tuple(earlier), mods=(mod._replace(new_values=values),))
    before, after = Worker(registry), Worker(registry)
    for worker, one in ((before, old), (after, new), (before, old), (after, new)):
        assert worker.publish(one)["note"] == "a"
    first, second = (version.schema for version in registry.versions("shop.shop.orders-value"))
    fields = [
        [field["name"] for field in row_fields(schema).values()] for schema in (first, second)
    ]
    assert fields[1][: len(fields[0])] == fields[0]
    assert fields[1][len(fields[0]) :] == ["_datastream_schema_key", "_datastream_tx_id"]
    message = before.translator.translate(old, token="t").messages[0]
    _, body = unframe(message.value)
    reader, writer = fastavro.parse_schema(second), fastavro.parse_schema(first)
    row = fastavro.schemaless_reader(io.BytesIO(bytes(body)), writer, reader)["new_values"]
    assert row["_datastream_schema_key"] is None


_LATER = ("_datastream_schema_key", "_datastream_tx_id")


def json_record(payload, *, deleted=False):
    (event,) = history("mysql", random.Random(1), 1)
    kind = {"change_type": "DELETE", "is_deleted": True} if deleted else {}
    event["source_metadata"].update(kind)
    line = json.loads(json_bytes([event]))
    data = json.dumps({**line, "payload": {"id": 7, **payload}}).encode() + b"\n"
    (read_event,) = EventFile("o/a.jsonl", io.BytesIO(data))
    return EventRecords().record_of(
        read_event, None, file="0" * 16, release_us=9, place=place_of(7, 2)
    )


def published(worker, one):
    """Return the value of a json_record's change, and the columns of the row that it names."""
    translated = worker.translator.translate_now(one, token="t")
    if translated is None:
        translated = worker.translator.translate(one, token="t")
    value = read_framed(translated.messages[0].value, worker.registry.schema)
    names = value["new_columns"] or value["old_columns"]
    return value, {name for name in names if not name.startswith("_")}


@pytest.mark.rule("datastream-json-nulls")
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("deleted", [False, True])
def test_a_null_is_named_once_its_column_has_had_a_value(restarts, deleted):
    registry = Registry()
    worker = Worker(registry)
    _, names = published(worker, json_record({"a": None, "b": 1}))
    assert names == {"id", "b"}  # of which type would a be
    _, names = published(worker, json_record({"a": "x", "b": None}))
    assert names == {"id", "a", "b"}
    if restarts:
        worker = Worker(registry)  # it knows of a, b what the registry has
    for _ in range(2):
        value, names = published(worker, json_record({"a": None, "b": None}, deleted=deleted))
        assert names == {"id", "a", "b"}
        row = value["old_values" if deleted else "new_values"]
        assert (row["a"], row["b"]) == (None, None)
    value, names = published(worker, json_record({"a": "y", "c": None}))
    assert names == {"id", "a"}
    assert value["new_values"]["a"] == "y"


def test_what_needs_no_change_is_the_same_record():
    plain = json_record({"a": 1})
    assert with_known_nulls(plain, ()) is plain
    null = json_record({"a": None})
    assert with_known_nulls(null, ("a",)) is null
    assert "a" not in with_known_nulls(null, ()).mods[0].new_values
