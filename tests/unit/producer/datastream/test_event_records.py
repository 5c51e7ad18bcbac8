"""Events as data change records: names, types, values; what is added, translated and set aside."""

import json
import os
import random
import tracemalloc
from decimal import Decimal
from functools import reduce
from io import BytesIO
from pathlib import Path

import fastavro
import pytest

from tests.datastream_files import (
    SOURCES,
    avro_bytes,
    history,
    json_bytes,
    of_one_schema,
    schema_of,
)
from tests.datastream_folder import minute_folder
from tests.datastream_model import ObjectModel
from tests.datastream_table import drawn_table
from tidegate.producer.core.publication import ParkedKeys
from tidegate.producer.datastream.errors import (
    FileCutShort,
    FileDamaged,
    IncompleteRow,
    InvalidEvent,
    Position,
)
from tidegate.producer.datastream.event import parse_event
from tidegate.producer.datastream.event_file import EventFile
from tidegate.producer.datastream.event_records import (
    EventRecords,
    file_and_record,
    place_of,
    table_name,
    time_and_turn,
)
from tidegate.producer.datastream.event_translator import EventTranslator
from tidegate.producer.datastream.file_ledger import found_file
from tidegate.producer.datastream.refused_events import (
    copied_event,
    dead_letter,
    refused_event,
    refused_file,
    set_aside,
)
from tidegate.producer.errors import (
    IncompatibleChange,
    MessageTooLarge,
    QueryInterrupted,
    TopicRefused,
)
from tidegate.producer.messages import FORM_EVENT, ChangeMessage, PublishableRecord
from tidegate.producer.records import DataChangeRecord, Mod
from tidegate.producer.translation.values import converter
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.order_key import OrderKey

REPOSITORY = Path(__file__).resolve().parents[4]
REAL = Path(
    os.environ.get("TIDEGATE_DATASTREAM_FILES", REPOSITORY.parent / "shared/data/datastream")
)
FILE = "0a1b2c3d4e5f6071"


def records_of(data, name="o/a.avro"):
    file, made = EventFile(name, BytesIO(data)), EventRecords()
    return [
        made.record_of(event, file.fields, file=FILE, release_us=9, place=place_of(7, 2))
        for event in file
    ]


def one_of(columns, payload, **metadata):
    event = history("mysql", random.Random(1), 1)[0]
    event["payload"] = payload
    event["source_metadata"].update(metadata)
    schema = schema_of("mysql")
    schema["fields"][-1]["type"]["fields"] = columns
    out = BytesIO()
    fastavro.writer(out, fastavro.parse_schema(schema), [event])
    return records_of(out.getvalue())[0]


def values_of(record):
    (mod,) = record.mods
    types = {column.name: column.type for column in record.columns}
    row = {**mod.keys, **mod.new_values, **mod.old_values}
    return {
        name: None if value is None else converter(types[name])(value)
        for name, value in row.items()
        if not name.startswith("_datastream")
    }


@pytest.mark.rule("datastream-whole-rows", "datastream-published-rows")
@pytest.mark.parametrize("source", SOURCES)
def test_an_insert_replaces_the_row_and_a_deletion_names_it(source):
    events = history(source, random.Random(3), 40)
    records = records_of(avro_bytes(source, events))
    orders = [record.server_transaction_id for record in records]
    assert orders == sorted(set(orders))
    for event, record in zip(events, records, strict=True):
        is_deleted = event["source_metadata"]["is_deleted"]
        assert record.mod_type == ("DELETE" if is_deleted else "INSERT")
        (mod,) = record.mods
        assert mod.keys == {"id": event["payload"]["id"]}
        row, other = mod.new_values, mod.old_values
        if is_deleted:
            row, other = other, row
        assert other == {}  # an update has no previous values
        assert {name for name in row if not name.startswith("_datastream")} == {
            "note", "at", "price",
        }  # fmt: skip
        assert row["note"] == event["payload"]["note"]
        assert Decimal(row["price"]) * 100 == int.from_bytes(event["payload"]["price"], "big")
        assert row["_datastream_uuid"] == event["uuid"]
        assert row["_datastream_change_type"] == event["source_metadata"]["change_type"]
        assert values_of(record)["price"] == (100 * 10**7 + events.index(event) * 10**7).to_bytes(
            5, "big"
        ).lstrip(b"\0")


@pytest.mark.rule("datastream-entire-row")
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("seed", range(3))
def test_a_record_has_every_column_of_the_row(source, seed):
    table = drawn_table(source, random.Random(seed), changes=20, rows=3)
    for some in of_one_schema([*table.backfill, *table.changes]):
        for write in (avro_bytes, lambda _source, events: json_bytes(events)):
            for event, record in zip(some, records_of(write(source, some)), strict=True):
                (mod,) = record.mods
                row = {**mod.keys, **mod.new_values, **mod.old_values}
                nulls = {name for name, value in event["payload"].items() if value is None}
                shown = {name for name in row if not name.startswith("_datastream")}
                assert shown == set(event["payload"])
                assert {name for name in shown if row[name] is None} == nulls
                # In JSON a null has no type, so that no column shows it.
                named = {column.name for column in record.columns}
                assert named == set(row) if write is avro_bytes else set(row) - named <= nulls


def test_tables_have_the_names_of_the_source_with_a_hash_where_no_topic_has_them():
    names = [
        records_of(avro_bytes(source, history(source, random.Random(1), 1)))[0].table_name
        for source in ("mysql", "oracle", "postgresql", "sqlserver", "salesforce")
    ]
    assert names == ["shop.orders", "SHOP.ORDERS", "public.orders", "dbo.orders", "Order"]
    events = history("mysql", random.Random(1), 2)
    events[0]["source_metadata"]["database"] = "ea-main"
    events[1]["source_metadata"]["database"] = "ea_main"
    first, second = (
        table_name(event) for event in EventFile("a", BytesIO(avro_bytes("mysql", events)))
    )
    assert second == "ea_main.orders"
    assert first.startswith("ea_main_")
    assert first != second


@pytest.mark.rule("datastream-tables-without-key")
def test_a_row_without_a_key_is_an_event_of_its_own_deletions_too():
    events = history("mysql", random.Random(3), 30)
    for event in events:
        event["source_metadata"]["primary_keys"] = []
    made = records_of(avro_bytes("mysql", events))
    assert {record.mod_type for record in made} == {"INSERT"}
    assert [record.mods[0].keys for record in made] == [
        {"_datastream_uuid": e["uuid"]} for e in events
    ]
    deleted = [
        record
        for record in made
        if record.mods[0].new_values["_datastream_change_type"] == "DELETE"
    ]
    assert deleted


@pytest.mark.parametrize(
    ("kind", "value", "code", "carried"),
    [
        ("int", 7, "INT64", 7), ("long", -(1 << 63), "INT64", -(1 << 63)),
        ("boolean", True, "BOOL", True), ("double", 0.5, "FLOAT64", 0.5),
        ("float", 0.5, "FLOAT32", 0.5), ("string", "é", "STRING", "é"),
        ("bytes", b"\x00\xff", "BYTES", b"\x00\xff"),
        ({"type": "long", "logicalType": "timestamp-micros"}, -1, "TIMESTAMP", -1),
        ({"type": "long", "logicalType": "timestamp-millis"}, 1_500, "TIMESTAMP", 1_500_000),
        ({"type": "int", "logicalType": "date"}, -1, "DATE", -1),
        ({"type": "long", "logicalType": "time-interval-micros"}, -5, "INT64", -5),
        ({"type": "string", "logicalType": "json"}, '{"a": 1}', "JSON", '{"a": 1}'),
        ({"type": "string", "logicalType": "number"}, "1.50", "NUMERIC", "1.50"),
        ({"type": "array", "items": "long"}, [1, 2], "JSON", "[1,2]"),
        ({"type": "record", "name": "varchar", "fields": [
             {"name": "value", "type": "string"}, {"name": "length", "type": "int"}]},
         {"value": "x", "length": 1}, "STRING", "x"),
        ({"type": "record", "name": "interval", "fields": [
             {"name": "months", "type": "int"}, {"name": "b", "type": "bytes"}]},
         {"months": 3, "b": b"\0"}, "JSON", '{"months":3,"b":"AA=="}'),
    ],
)  # fmt: skip
def test_types_and_values(kind, value, code, carried):
    columns = [{"name": "id", "type": ["null", "long"]}, {"name": "c", "type": ["null", kind]}]
    record = one_of(columns, {"id": 1, "c": value})
    types = {column.name: column.type for column in record.columns}
    assert types["c"].code == code
    assert values_of(record)["c"] == carried
    assert values_of(one_of(columns, {"id": 1, "c": None}))["c"] is None


def decimal(precision, scale):
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def test_a_decimal_beyond_numeric_is_text_with_all_its_digits():
    columns = [{"name": "id", "type": "long"}, {"name": "c", "type": decimal(65, 30)}]
    record = one_of(columns, {"id": 1, "c": (-(10**64) - 7).to_bytes(28, "big", signed=True)})
    assert values_of(record)["c"] == f"-1{'0' * 34}.{'0' * 29}7"
    small = one_of([columns[0], {"name": "c", "type": decimal(38, 9)}], {"id": 1, "c": b"\x02"})
    assert values_of(small)["c"] == b"\x02"


def test_numbers_of_json_are_text_with_all_their_digits():
    line = json_bytes(history("mysql", random.Random(1), 1))
    line = line.replace(b'"note": "change 0"', b'"note": {"n": 1.2345678901234567890}, "x": null')
    (record,) = records_of(line, "a.jsonl")
    values = values_of(record)
    assert values["note"] == '{"n":1.2345678901234567890}'
    assert values["id"] == str(record.mods[0].keys["id"])
    assert values.pop("x", "absent") is None  # it has no type, so that no column shows it
    assert "x" not in {column.name for column in record.columns}
    assert Decimal(values["price"]) == 1


@pytest.mark.skipif(not REAL.is_dir(), reason="no files of Datastream (TIDEGATE_DATASTREAM_FILES)")
def test_real_files_become_records():
    carried, refused = 0, []
    for path in sorted(REAL.rglob("*.avro")):
        try:
            carried += sum(
                len(values_of(record)) for record in records_of(path.read_bytes(), path.name)
            )
        except InvalidEvent as error:
            refused.append(error.message)
    assert carried > 100
    # One that the template's authors made by hand: microseconds that no calendar has.
    assert len(refused) <= 1
    assert all("timestamp" in message for message in refused)


def test_the_place_can_be_read_from_a_record():
    (record,) = records_of(avro_bytes("mysql", history("mysql", random.Random(1), 1)))
    assert file_and_record(record.server_transaction_id) == (FILE, 1)
    assert time_and_turn(record.record_sequence) == (7, 2)
    assert record.commit_timestamp_ns == 9_000
    assert record.transaction_tag == "o/a.avro"
    with pytest.raises(SchemaError, match="file and record"):
        file_and_record("x")


def spanner_event(change_type, capture, *, number=0, note=None):
    event = history("postgresql", random.Random(1), 1)[0]
    event["uuid"] = f"{number:032x}"
    at_us = event["source_timestamp"] * 1_000 + 7 + number
    event |= {"read_method": "spanner-cdc", "payload": {"id": 1, "note": note}}
    event["sort_keys"] = [event["source_timestamp"], at_us, "t", f"{3:032x}", 0]
    event["source_metadata"] = {
        "database": "d", "schema": "", "table": "Orders", "primary_keys": ["id"],
        "is_deleted": change_type == "DELETE", "change_type": change_type, "tx_id": "t",
        "record_sequence": "00000003", "mod_number": 0, "commit_timestamp": at_us,
        "value_capture_type": capture, "captured_columns": ["id"],
    }  # fmt: skip
    return event


def of_spanner(change_type, capture):
    event = parse_event(spanner_event(change_type, capture), Position("o/a.avro", 4))
    return EventRecords().record_of(
        event, None, file=FILE, release_us=9, place=place_of(7, 2)
    )  # fmt: skip


@pytest.mark.rule("datastream-tidegate-whole-rows")
@pytest.mark.parametrize("capture", ["OLD_AND_NEW_VALUES", "NEW_VALUES"])
def test_an_update_of_spanner_without_the_whole_row_is_refused(capture):
    with pytest.raises(IncompleteRow, match=rf"record=4.*{capture}.*Use a change stream with"):
        of_spanner("UPDATE", capture)
    assert of_spanner("INSERT", capture).mod_type == "INSERT"
    assert of_spanner("DELETE", capture).mod_type == "DELETE"
    # One with the whole row is a row in Spanner's order.
    record = of_spanner("UPDATE", "NEW_ROW")
    (mod,) = record.mods
    assert (record.table_name, record.mod_type, mod.keys) == ("Orders", "INSERT", {"id": "1"})
    at_us = history("postgresql", random.Random(1), 1)[0]["source_timestamp"] * 1_000 + 7
    order = OrderKey(at_us, "t", (0, 3), 0).encode().hex()
    assert mod.new_values["_datastream_order"] == f"01{order}-{FILE}-00000004"


@pytest.mark.parametrize("capture", ["NEW_ROW", "NEW_ROW_AND_OLD_VALUES"])
@pytest.mark.parametrize("parks", [True, False])
def test_a_change_stream_that_captures_the_whole_row_is_read_on(capture, parks):
    at_minute = history("postgresql", random.Random(1), 1)[0]["source_timestamp"] // 60_000
    reader = ObjectModel(now_us=(at_minute + 60) * 60_000_000, parks=parks)
    events = [
        spanner_event("UPDATE", "NEW_VALUES", number=0, note="lost"),
        spanner_event("UPDATE", capture, number=1, note="whole"),
    ]
    paths = [f"root/shop_orders/{minute_folder(at_minute + n)}/{n}.jsonl" for n in range(2)]
    for path, event in zip(paths, events, strict=True):
        reader.files.put(
            path, json.dumps(event).encode() + b"\n", modified_us=at_minute * 60_000_000
        )
    if parks:
        reader.run()
    else:
        with pytest.raises(IncompleteRow, match=r"remove the file"):
            reader.run()
        reader.files.remove(paths[0])
        reader.die()
        reader.run()
    assert [letter.reason for letter in reader.dead_letters] == ["IncompleteRow"] * parks
    ((message, _),) = reader.published
    assert message.value.mods[0].new_values["note"] == "whole"


METADATA = {
    "mysql": {"tx_id": None},
    "oracle": {"tx_id": "0.1.2", "scn": 15_869_116_216_871, "row_id": "AAAEALAAEAAAACd0"},
    "postgresql": {"tx_id": "700"},
    "sqlserver": {"tx_id": "0000:00000000"},
    "salesforce": {},
}


@pytest.mark.rule("datastream-metadata-columns")
@pytest.mark.parametrize("source", SOURCES)
def test_metadata_that_a_source_has_are_columns(source):
    (event,) = history(source, random.Random(3), 1)
    for data in (avro_bytes(source, [event]), json_bytes([event])):
        (record,) = records_of(data)
        (mod,) = record.mods
        expected = {**METADATA[source], "schema_key": event["schema_key"]}
        for name in ("tx_id", "scn", "row_id", "schema_key"):
            column = f"_datastream_{name}"
            assert (column in mod.new_values) == (name in expected)
            assert mod.new_values.get(column) == expected.get(name)
            assert column in {column.name for column in record.columns} or name not in expected


def of_json(payload, **metadata):
    (event,) = history("mysql", random.Random(1), 1)
    event["source_metadata"].update(metadata)
    line = json.loads(json_bytes([event]))
    return records_of(json.dumps({**line, "payload": payload}).encode() + b"\n", "a.jsonl")


@pytest.mark.rule("datastream-json-names")
def test_columns_whose_names_avro_does_not_have_get_others():
    names = ["first name", "größe", "1st", "a-b", "a.b", "", "_ok", "Ok1", "名前"]
    payload = {"id": 7, **{name: f"of {name}" for name in names}}
    (record,) = of_json(payload)
    (mod,) = record.mods
    published = {value: name for name, value in mod.new_values.items() if value in payload.values()}
    assert [published[f"of {name}"] for name in names] == [
        "first_name_58083361", "gr__e_fdfde0a8", "_1st", "a_b_3603c17e",
        "a_b_7763e469", "_0977e704", "_ok", "Ok1", "___45af67d2",
    ]  # fmt: skip
    assert len(set(published.values())) == len(names)
    (keyed,) = of_json({"the id": 7}, primary_keys=["the id"])
    ((name, value),) = keyed.mods[0].keys.items()
    assert (name[:7], value) == ("the_id_", "7")
    assert [column.name for column in keyed.columns if column.is_primary_key] == [name]


def deep(levels):
    nested = 1
    for _ in range(levels):
        nested = [nested]
    return nested


@pytest.mark.rule("datastream-hostile-files")
@pytest.mark.parametrize(
    "value",
    ["1e999999999", "1e-999999999", "1e150001", "1." + "1" * 150_001, "deep"],
    ids=lambda value: value[:12],
)
def test_a_few_characters_of_json_do_not_become_many(value):
    event = json.loads(json_bytes(history("mysql", random.Random(1), 1)))
    line = json.dumps(event).replace('"price": 1.0', f'"price": {value}')
    if value == "deep":
        line = json.dumps({**event, "payload": {**event["payload"], "note": deep(900)}})
    tracemalloc.start()
    (error,) = [refusal for refusal in refusals(line.encode()) if refusal is not None]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(error, InvalidEvent | FileDamaged)
    assert peak < 50 << 20


def refusals(data):
    file, made = EventFile("a.jsonl", BytesIO(data)), EventRecords()
    try:
        for event in file:
            try:
                made.record_of(event, None, file=FILE, release_us=9, place=place_of(7, 2))
            except InvalidEvent as error:
                yield error
            else:
                yield None
    except FileDamaged as error:
        yield error


@pytest.mark.parametrize("text", ["1e149000", "1e-9", "-0.0", "12345678901234567890.125"])
def test_numbers_of_databases_are_read_with_all_digits(text):
    event = json_bytes(history("mysql", random.Random(1), 1)).decode()
    line = event.replace('"price": 1.0', f'"price": {text}')
    assert list(refusals(line.encode())) == [None]


def test_numbers_that_json_does_not_have_are_texts_in_arrays():
    columns = [
        {"name": "id", "type": "long"},
        {"name": "a", "type": {"type": "array", "items": "double"}},
    ]
    record = one_of(columns, {"id": 1, "a": [float("nan"), float("-inf"), 1.0, 0.1]})
    assert record.mods[0].new_values["a"] == '["NaN","-Infinity",1.0,0.1]'


NESTED = {
    "type": "record", "name": "nested", "fields": [{"name": "in", "type": ["null", "nested"]}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "kind", "value", "text"),
    [
        ("until", {"type": "long", "logicalType": "timestamp-micros"},
         9_223_372_036_825_200_000, "until"),
        ("_datastream_order", "string", "x", "_datastream_order"),
        ("price", decimal(10, 2), b"\x7f" * 200_000, "a decimal has 200000 bytes"),
        ("a", NESTED, reduce(lambda value, _: {"in": value}, range(150), None),
         "nested deeper than 128"),
    ],
    ids=["no timestamp", "an added name", "a long decimal", "a deep document"],
)  # fmt: skip
def test_a_value_that_no_column_can_hold_is_refused(name, kind, value, text):
    columns = [{"name": "id", "type": "long"}, {"name": name, "type": kind}]
    with pytest.raises(InvalidEvent, match=text) as raised:
        one_of(columns, {"id": 1, name: value})
    assert raised.value.fields["record"] == 1


def test_rows_that_cannot_be_published_are_refused():
    (event,) = history("salesforce", random.Random(1), 1)
    event["source_timestamp"] = event["sort_keys"][0] = 10**15  # that no calendar has
    with pytest.raises(InvalidEvent, match="_datastream_source_timestamp"):
        records_of(avro_bytes("salesforce", [event]))
    with pytest.raises(InvalidEvent, match="the row has columns _1st and 1st"):
        of_json({"id": 7, "_1st": 1, "1st": 2})
    # A null would replace what Tidegate adds.
    with pytest.raises(InvalidEvent, match="_datastream_order, which Tidegate adds"):
        of_json({"id": 7, "_datastream_order": None})
    with pytest.raises(InvalidEvent, match="the row has columns _1st and 1st"):
        of_json({"id": 7, "_1st": 1, "1st": None})
    with pytest.raises(InvalidEvent, match="the row has columns _1st and 1st"):
        of_json({"id": 7, "1st": 1, "_1st": 2})
    with pytest.raises(InvalidEvent, match="id of the key is null"):
        of_json({"id": None, "note": "a"})


FOUND = found_file("o/2024/02/29/23/59/a.avro", within="o", modified_us=0)


def test_a_refused_event_is_a_dead_letter_with_file_record_and_error():
    error = InvalidEvent.at(Position(FOUND.path, 5), "the value is wrong")
    record = refused_event(error, FOUND, 5, earliest_us=70, turn=2)
    record_aside = set_aside(record, file=FOUND.name, number=5, token="t")
    (letter,) = record_aside.parked
    assert (letter.form, letter.reason, letter.token) == (FORM_EVENT, "InvalidEvent", "t")
    content = json.loads(letter.content)
    assert (content["file"], content["record"]) == (FOUND.path, 5)
    assert "the value is wrong" in content["error"]
    assert letter.error == content["error"]
    # It parks no key.
    diverted, parked = ParkedKeys().divert(record_aside, token="t")
    assert diverted == record_aside
    assert (parked.keys, parked.changes) == (frozenset(), 1)


def test_a_refused_file_has_a_place_beside_its_records():
    error = FileCutShort.at(Position(FOUND.path, 4), "the file ends in the middle of a line")
    record = refused_file(error, FOUND, 5, earliest_us=70, turn=2)
    assert file_and_record(record.server_transaction_id) == (FOUND.name, 5)
    record_aside = set_aside(record, file=FOUND.name, number=5, token="t")
    assert (record_aside.server_transaction_id, record_aside.record_sequence) == (
        f"{FOUND.name}!",
        "5/2",
    )
    (letter,) = record_aside.parked
    assert letter.key == f"{FOUND.name}-00000005".encode()


def test_a_long_error_and_a_long_path_are_cut():
    letter = dead_letter(
        SchemaError("x" * 5_000),
        copied_event(FOUND, 1, earliest_us=0, turn=1)._replace(transaction_tag="p" * 9_000),
        file=FOUND.name, number=1, token="t",
    )  # fmt: skip
    assert len(letter.content) < 3_500
    assert len(letter.error) == 1_000


MESSAGE = ChangeMessage("t", b"k", b"v", b"o", b"I", b"origin")
RECORD = DataChangeRecord(
    9_000, place_of(7, 2), f"01ff-{FILE}-00000005", True, "shop.orders", (),
    (Mod({"id": 1}, {}, {}),), "INSERT", "NEW_ROW", 1, 1, "o/a.avro", False,
)  # fmt: skip


class Inner:
    def __init__(self, outcome=None, *, now=True):
        self.outcome = outcome
        self.now = now

    def translate_now(self, record, *, token):
        return self.translate(record, token=token) if self.now else None

    def translate(self, record, *, token):
        if self.outcome is not None:
            raise self.outcome
        return PublishableRecord(1, record.server_transaction_id, "0", (MESSAGE,))


def translator(inner, *, parks):
    return EventTranslator(inner, parks=parks, columns_of=lambda _table: None)


def test_the_place_is_the_file_and_its_record():
    for translate in (translator(Inner(), parks=False).translate,
                      translator(Inner(), parks=False).translate_now):  # fmt: skip
        translated = translate(RECORD, token="t")
        assert translated == PublishableRecord(7, FILE, "5/2", (MESSAGE,))
    assert translator(Inner(now=False), parks=True).translate_now(RECORD, token="t") is None
    # One that is late by its place has its release time.
    record = RECORD._replace(record_sequence=place_of(5_000, 2))
    translated = translator(Inner(), parks=False).translate(record, token="t")
    assert translated == PublishableRecord(9, FILE, "5/2", (MESSAGE,))
    # A copy is never translated.
    copy = copied_event(FOUND, 5, earliest_us=7, turn=2)
    translated = translator(Inner(SchemaError("x")), parks=False).translate_now(copy, token="t")
    assert (translated.server_transaction_id, translated.filtered) == (FOUND.name, 1)


@pytest.mark.parametrize(
    "error",
    [SchemaError("x"), IncompatibleChange("x"), MessageTooLarge("x", reason="y"),
     TopicRefused("x")],
)  # fmt: skip
def test_a_refused_event_stops_or_is_a_dead_letter(error):
    with pytest.raises(type(error)):
        translator(Inner(error), parks=False).translate(RECORD, token="t")
    parking = translator(Inner(error), parks=True)
    assert parking.translate_now(RECORD, token="t") is None
    translated = parking.translate(RECORD, token="t")
    (letter,) = translated.parked
    assert translated.server_transaction_id == FILE
    assert letter.reason == type(error).__name__
    assert b'"file": "o/a.avro", "record": 5, "table": "shop.orders"' in letter.content
    later = QueryInterrupted("later", code="UNAVAILABLE")  # what may pass is raised
    with pytest.raises(QueryInterrupted):
        translator(Inner(later), parks=True).translate(RECORD, token="t")
