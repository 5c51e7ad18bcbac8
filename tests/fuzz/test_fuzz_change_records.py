"""Responses of a change stream query, decoded and translated: messages, or a typed error.

Damage comes in the message's bytes, in its nested values, in its JSON texts; in either dialect.
Nothing vanishes: a response of one row, once damaged, is refused or still holds a record.
"""

import copy
import io
import json
import math
from contextlib import suppress

import fastavro
import orjson
import pytest
from google.cloud.spanner_v1.types import PartialResultSet
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from tests.damage import damaged_row
from tests.fuzz.conftest import assert_reportable, damage
from tests.unit.producer.spanner import conftest as wire
from tidegate.producer.errors import IncompatibleChange, TableChanged
from tidegate.producer.records import (
    ChildPartitionsRecord,
    DataChangeRecord,
    HeartbeatRecord,
    Mod,
    RecordColumn,
    UnreadableValues,
)
from tidegate.producer.spanner.decoding.json_rows import JsonResponseDecoder
from tidegate.producer.spanner.decoding.struct_rows import ColumnTypesCache, ResponseDecoder
from tidegate.producer.translation.table_evolution import evolve
from tidegate.producer.translation.table_registrar import TableRegistrar
from tidegate.producer.translation.translator import Translator
from tidegate.schemas.change_schema import key_schema, value_schema
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.order_key import OrderKey
from tidegate.schemas.progress import PartitionAnnounced, ProgressRecord
from tidegate.schemas.progress_codec import decode_record, encode_record
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.tables import Column, ColumnType, TableSchema
from tidegate.schemas.topics import TopicNames
from tidegate.schemas.wire_format import unframe

SCALARS = {
    "INT64": "12", "FLOAT64": 1.5, "FLOAT32": "NaN", "BOOL": True, "STRING": "text", "JSON": "{}",
    "BYTES": "aGVsbG8=", "NUMERIC": "1.5", "DATE": "2024-02-29", "UUID":
    "f81d4fae-7dec-11d0-a765-00a0c91e6bf6", "TIMESTAMP": "2024-01-02T03:04:05.678901Z",
    "ENUM": "3", "PROTO": "CAE=", "INTERVAL": "P1Y",
}  # fmt: skip
COLUMNS = (
    Column("id", ColumnType("INT64"), 1, key_position=1),
    *(Column(f"c_{code}", ColumnType(code), 2 + n) for n, code in enumerate(SCALARS)),
    Column("list", ColumnType("ARRAY", ColumnType("STRING")), 30),
)
TABLE = TableSchema("t", COLUMNS)
NEW_VALUES = {**{f"c_{code}": one for code, one in SCALARS.items()}, "list": ["a", None]}


def type_json(column_type):
    if column_type.element is None:
        return {"code": column_type.code}
    return {"array_element_type": type_json(column_type.element), "code": column_type.code}


ROW_TYPE = wire.row_type()
KEY_COLUMN = {"id": "7"}
DATA = {
    "column_types": [[c.name, json.dumps(type_json(c.type)), c.key_position is not None,
                      str(c.ordinal)] for c in COLUMNS],
    "mods": [[json.dumps(KEY_COLUMN), json.dumps(NEW_VALUES), "{}"],
             [json.dumps({"id": "8"}), json.dumps({}), json.dumps({"list": None})]],
    "mod_type": "UPDATE", "value_capture_type": "OLD_AND_NEW_VALUES",
}  # fmt: skip
INSERT = [*{**wire.INSERT, **DATA}.values()]
CHILDREN = (["child", ["left", "right"]], ["other", []])
ROWS = {
    "data": wire.data_row(**DATA),
    "heartbeat": wire.heartbeat_row(),
    "children": wire.children_row(*CHILDREN),
}
JSON_ROWS = [
    json.loads(row) for row in (wire.json_data_row(**DATA), wire.json_heartbeat_row(),
                                wire.json_children_row(*CHILDREN))
]  # fmt: skip


def message(*rows, with_type=True, chunked=False):
    return wire.message(*rows, metadata=ROW_TYPE if with_type else None, chunked=chunked)


REGISTRAR = TableRegistrar(TopicNames("bank"), InMemorySchemaRegistry())
TRANSLATOR = Translator({"t": REGISTRAR.register(TABLE)}, change_stream="S")
SCHEMAS = [
    fastavro.parse_schema(copy.deepcopy(make("bank.t", TABLE)))
    for make in (key_schema, value_schema)
]


def decode(*messages):
    """As a query does: what it yields before it fails counts too."""
    decoder, records = ResponseDecoder(ColumnTypesCache()), []
    # The accelerator reads the messages after the one with the metadata.
    decoder.decode(message().SerializeToString())
    try:
        for one in messages:
            records += decoder.decode(one.SerializeToString())
        decoder.end()
    except SchemaError as error:
        assert_reportable(error)
        return records, False
    return records, True


def decode_json(text):
    decoder = JsonResponseDecoder(ColumnTypesCache())
    try:
        built = wire.message(text, metadata=wire.JSONB_TYPE)
        records = decoder.decode(built.SerializeToString())
        decoder.end()
    except SchemaError as error:
        assert_reportable(error)
        return []
    assert len(records) == 1
    return records


def follow(records):
    """As a worker does with records: data is translated, children are announced."""
    for record in records:
        match record:
            case DataChangeRecord():
                translate(record)
            case ChildPartitionsRecord(children=children):
                for child in children:
                    announce(child)
            case HeartbeatRecord(timestamp_ns=timestamp_ns):
                assert isinstance(timestamp_ns, int)


COUNTED = (
    "number_of_records_in_transaction", "number_of_partitions_in_transaction", "record_sequence",
    "server_transaction_id", "transaction_tag", "value_capture_type", "is_system_transaction",
)  # fmt: skip


def translate(record):
    try:
        translated = TRANSLATOR.translate(record, token="k")
    except SchemaError as error:
        assert_reportable(error)
    except TableChanged as error:
        assert_reportable(error)
        try:
            grown = evolve(TABLE, TABLE, record.columns, table=record.table_name)
            key_schema("bank.t", grown)
            value_schema("bank.t", grown)
        except (IncompatibleChange, SchemaError) as further:
            assert_reportable(further)
    else:
        assert len(translated.messages) == len(record.mods)
        for number, one in enumerate(translated.messages):
            assert OrderKey.decode(one.order_key).mod_number == number
            _, value = (read(*pair) for pair in zip((one.key, one.value), SCHEMAS, strict=True))
            assert value["mod_type"] == record.mod_type
            for name in COUNTED:
                assert value["source"][name] == getattr(record, name)


def read(framed, schema):
    buffer = io.BytesIO(unframe(framed)[1])
    found = fastavro.schemaless_reader(buffer, schema, None)
    assert buffer.read() == b""
    return found


def announce(child):
    record = ProgressRecord("e", "w", PartitionAnnounced(child, ""))
    try:
        assert decode_record(encode_record(record)) == record
    except SchemaError as error:
        assert_reportable(error)


TEXTS = st.text(max_size=12) | st.sampled_from(
    ["NaN", "9" * 400, "2024-01-02T03:04:05.678901001Z", "9999-12-31T23:59:59-23:59", "{", "null",
     "[]", '{"id":"7"}', '{"code":"ARRAY","array_element_type":{}}', "18446744073709551616"]
)  # fmt: skip
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers(-(2**70), 2**70) | TEXTS,
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=10,
)


def test_the_undamaged_rows_are_read():
    for row in ROWS.values():
        records, well = decode(message(row))
        assert (well, len(records)) == (True, 1)
        follow(records)
    for row in JSON_ROWS:
        (record,) = decode_json(json.dumps(row))
        follow([record])


@given(st.sampled_from(sorted(ROWS)), st.data())
def test_damaged_values_and_messages(kind, data):
    """Bytes that no protobuf parser takes never reach us; all others do."""
    row = damaged_row(ROWS[kind], data, PLAIN, times=(1, 3))
    follow(decode(message(row))[0])
    whole = message(ROWS[kind]).SerializeToString()
    with suppress(DecodeError):
        found = PartialResultSet.pb().FromString(damage(data, whole))
        follow(decode(found, message(ROWS["heartbeat"], with_type=False))[0])


@given(st.lists(st.tuples(st.lists(PLAIN, max_size=3), st.booleans(), st.booleans()), max_size=4))
def test_any_chunks(parts):
    messages = [message(*rows, with_type=typed, chunked=cut) for rows, typed, cut in parts]
    follow(decode(*messages)[0])


@given(st.integers(0, len(INSERT) - 1), PLAIN)
@example(0, None)
@example(6, None)
@example(9, math.inf)
@example(9, math.nan)
@example(9, "18446744073709551616")
@example(10, 1e300)
def test_no_damaged_change_vanishes(at, plain):
    fields = copy.deepcopy(INSERT)
    fields[at] = plain
    records, well = decode(message([[[fields], [], []]]))
    assert len(records) == (1 if well else 0)
    follow(records)


@given(st.integers(0, 2), st.data())
def test_damaged_json_of_a_change(at, data):
    mods = copy.deepcopy(DATA["mods"])
    mods[0][at] = damage(data, mods[0][at].encode()).decode(errors="replace")
    follow(decode(message(wire.data_row(**{**DATA, "mods": mods})))[0])


def decode_values(text):
    mods = [[json.dumps(KEY_COLUMN), text, "{}"]]
    return decode(message(wire.data_row(**{**DATA, "mods": mods})))


@given(st.dictionaries(st.sampled_from([c.name for c in COLUMNS]) | TEXTS, JSON_VALUES, max_size=4))
@example({"c_INT64": [[[]]]})
@example({"c_NUMERIC": 1e300})
@example({"list": {"a": 1}})
@example({"id": math.inf})
def test_any_values_of_columns(captured):
    """Values as the JSON parser gives them; what no JSON can hold is an error of its change."""
    text = json.dumps(captured)
    records, well = decode_values(text)
    assert well
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        (record,) = [one for one in records if isinstance(one, DataChangeRecord)]
        assert isinstance(record.mods[0].new_values, UnreadableValues)
    follow(records)


DEEP = '{"c_INT64":' + "[" * 1_000 + "]" * 1_000 + "}"
LONG_LIST = json.dumps({"list": [["x" * 1_000] * 1_000]})


@pytest.mark.timeout(60)
@pytest.mark.parametrize("text", [DEEP, LONG_LIST], ids=["deep", "long"])
def test_the_error_on_an_oversized_value_is_short(text):
    follow(decode_values(text)[0])


COLUMN_NAMES = st.sampled_from([c.name for c in COLUMNS])
SHOWN = st.builds(
    RecordColumn,
    COLUMN_NAMES | TEXTS,
    st.sampled_from([c.type for c in COLUMNS]) | st.builds(ColumnType, TEXTS),
    st.booleans(),
    st.integers(),
)
MODS = st.just(Mod(KEY_COLUMN, NEW_VALUES, {})) | st.builds(
    Mod,
    st.just(KEY_COLUMN) | st.dictionaries(st.just("id") | TEXTS, JSON_VALUES),
    st.just(NEW_VALUES) | st.dictionaries(COLUMN_NAMES, JSON_VALUES),
    st.just({}),
)
HUGE = st.integers(-(2**70), 2**70)


@given(
    st.builds(
        DataChangeRecord,
        commit_timestamp_ns=HUGE,
        record_sequence=TEXTS,
        server_transaction_id=st.text(max_size=5),
        is_last_record_in_transaction_in_partition=st.booleans(),
        table_name=st.sampled_from(["t", "u"]),
        columns=st.just(()) | st.lists(SHOWN, max_size=3).map(tuple),
        mods=st.lists(MODS, max_size=3).map(tuple),
        mod_type=st.sampled_from(["INSERT", "UPDATE", "DELETE"]),
        value_capture_type=TEXTS,
        number_of_records_in_transaction=HUGE,
        number_of_partitions_in_transaction=HUGE,
        transaction_tag=st.text(max_size=5),
        is_system_transaction=st.booleans(),
    )
)
def test_any_record_is_translated_or_refused(record):
    translate(record)


# ---------------------------------------------------------------- rows of JSON


def places(value, path=()):
    yield path
    inner = value.items() if isinstance(value, dict) else ()
    for at, one in enumerate(value) if isinstance(value, list) else inner:
        yield from places(one, (*path, at))


@given(st.sampled_from(JSON_ROWS), st.data())
def test_damaged_values_of_json_rows(row, data):
    row = copy.deepcopy(row)
    (*path, last) = data.draw(st.sampled_from([path for path in places(row) if path]))
    target = row
    for at in path:
        target = target[at]
    if data.draw(st.booleans()):
        target[last] = data.draw(JSON_VALUES)
    else:
        del target[last]
    follow(decode_json(json.dumps(row)))


@given(st.sampled_from(JSON_ROWS), JSON_VALUES, st.data())
def test_damaged_texts_of_json_rows(row, value, data):
    follow(decode_json(damage(data, json.dumps(row).encode()).decode(errors="replace")))
    follow(decode_json(json.dumps(value)))
