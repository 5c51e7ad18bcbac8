"""Responses of a change stream query, decoded and translated: messages, or a typed error.

Damage comes at three depths: in the message's bytes, in its nested values, in its JSON texts.
Nothing vanishes: a response of one row, once damaged, is refused or still holds a record.
"""

import copy
import io
import json
import math

import fastavro
import orjson
import pytest
from google.cloud.spanner_v1.types import PartialResultSet, StructType, Type, TypeCode
from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import ListValue, Value
from hypothesis import example, given
from hypothesis import strategies as st

from tests.damage import damaged_row
from tidegate.producer.errors import IncompatibleChange, TableChanged
from tidegate.producer.records import (
    ChildPartitionsRecord,
    DataChangeRecord,
    HeartbeatRecord,
    Mod,
    RecordColumn,
    UnreadableValues,
)
from tidegate.producer.spanner.decode import ColumnTypesCache, ResponseDecoder
from tidegate.producer.translation.table_evolution import evolve
from tidegate.producer.translation.table_registrar import TableRegistrar
from tidegate.producer.translation.translator import Translator
from tidegate.schemas.change_schema import key_schema, value_schema
from tidegate.schemas.errors import SchemaError, TidegateError
from tidegate.schemas.order_key import OrderKey
from tidegate.schemas.progress import ChildPartition, PartitionAnnounced, ProgressRecord
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


def scalar(code):
    return Type(code=code)


def struct(**fields):
    found = [StructType.Field(name=name, type_=kind) for name, kind in fields.items()]
    return Type(code=TypeCode.STRUCT, struct_type=StructType(fields=found))


def array(element):
    return Type(code=TypeCode.ARRAY, array_element_type=element)


STRING, BOOL, INT64 = scalar(TypeCode.STRING), scalar(TypeCode.BOOL), scalar(TypeCode.INT64)
TIMESTAMP, JSON = scalar(TypeCode.TIMESTAMP), scalar(TypeCode.JSON)
DATA = {
    "commit_timestamp": TIMESTAMP,
    "record_sequence": STRING,
    "server_transaction_id": STRING,
    "is_last_record_in_transaction_in_partition": BOOL,
    "table_name": STRING,
    "column_types": array(
        struct(name=STRING, type=JSON, is_primary_key=BOOL, ordinal_position=INT64)
    ),
    "mods": array(struct(keys=JSON, new_values=JSON, old_values=JSON)),
    "mod_type": STRING,
    "value_capture_type": STRING,
    "number_of_records_in_transaction": INT64,
    "number_of_partitions_in_transaction": INT64,
    "transaction_tag": STRING,
    "is_system_transaction": BOOL,
}
CHILDREN = {
    "start_timestamp": TIMESTAMP,
    "record_sequence": STRING,
    "child_partitions": array(struct(token=STRING, parent_partition_tokens=array(STRING))),
}
ROW_TYPE = StructType(
    fields=[
        StructType.Field(
            name="ChangeRecord",
            type_=array(
                struct(
                    data_change_record=array(struct(**DATA)),
                    heartbeat_record=array(struct(timestamp=TIMESTAMP)),
                    child_partitions_record=array(struct(**CHILDREN)),
                )
            ),
        )
    ]
)
INSERT = [
    "2024-01-02T03:04:05.678901Z", "00000001", "tx", True, "t",
    [[c.name, json.dumps(type_json(c.type)), c.key_position is not None, str(c.ordinal)]
     for c in COLUMNS],
    [[json.dumps({"id": "7"}), json.dumps(NEW_VALUES), "{}"],
     [json.dumps({"id": "8"}), json.dumps({}), json.dumps({"list": None})]],
    "UPDATE", "OLD_AND_NEW_VALUES", "2", "1", "", False,
]  # fmt: skip
ROWS = {
    "data": [[[INSERT], [], []]],
    "heartbeat": [[[], [["2024-01-02T03:04:05Z"]], []]],
    "children": [
        [[], [], [["2024-01-02T03:04:05.000000001Z", "00000000",
                   [["child", ["left", "right"]], ["other", []]]]]]
    ],
}  # fmt: skip


def value(plain):
    """A protobuf Value of a plain Python value."""
    match plain:
        case None:
            return Value(null_value=0)
        case bool():
            return Value(bool_value=plain)
        case int() | float():
            return Value(number_value=plain)
        case str():
            return Value(string_value=plain)
        case _:
            return Value(list_value=ListValue(values=[value(item) for item in plain]))


def message(*rows, with_type=True, chunked=False):
    built = PartialResultSet.pb()(values=[value(row) for row in rows], chunked_value=chunked)
    if with_type:
        built.metadata.row_type.CopyFrom(StructType.pb(ROW_TYPE))
    return built


WHOLE = [message(row).SerializeToString() for row in ROWS.values()]
REGISTRY = InMemorySchemaRegistry()
REGISTRAR = TableRegistrar(TopicNames("bank"), REGISTRY)
ENCODING = REGISTRAR.register(TABLE)
TRANSLATOR = Translator({"t": ENCODING}, change_stream="S")
SCHEMAS = [
    fastavro.parse_schema(copy.deepcopy(make("bank.t", TABLE)))
    for make in (key_schema, value_schema)
]


def decode(assert_reportable, *messages):
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


def follow(assert_reportable, records):
    """As a worker does with records: data is translated, children are announced."""
    for record in records:
        match record:
            case DataChangeRecord():
                translate(assert_reportable, record)
            case ChildPartitionsRecord(children=children):
                for child in children:
                    announce(assert_reportable, child)
            case HeartbeatRecord(timestamp_ns=timestamp_ns):
                assert isinstance(timestamp_ns, int)


def translate(assert_reportable, record):
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


COUNTED = (
    "number_of_records_in_transaction", "number_of_partitions_in_transaction", "record_sequence",
    "server_transaction_id", "transaction_tag", "value_capture_type", "is_system_transaction",
)  # fmt: skip


def read(framed, schema):
    buffer = io.BytesIO(unframe(framed)[1])
    found = fastavro.schemaless_reader(buffer, schema, None)
    assert buffer.read() == b""
    return found


def announce(assert_reportable, child):
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


@given(st.sampled_from(sorted(ROWS)), st.data())
def test_damaged_values(assert_reportable, kind, data):
    row = damaged_row(ROWS[kind], data, PLAIN, times=(1, 3))
    follow(assert_reportable, decode(assert_reportable, message(row))[0])


@given(st.sampled_from(range(len(WHOLE))), st.data())
def test_damaged_messages(damaged, assert_reportable, index, data):
    """Bytes that no protobuf parser takes never reach us; all others do."""
    try:
        found = PartialResultSet.pb().FromString(damaged(data, WHOLE[index]))
    except DecodeError:
        return
    follow(
        assert_reportable,
        decode(assert_reportable, found, message(ROWS["heartbeat"], with_type=False))[0],
    )


@given(st.lists(st.tuples(st.lists(PLAIN, max_size=3), st.booleans(), st.booleans()), max_size=4))
def test_any_chunks(assert_reportable, parts):
    messages = [message(*rows, with_type=typed, chunked=cut) for rows, typed, cut in parts]
    follow(assert_reportable, decode(assert_reportable, *messages)[0])


@given(PLAIN)
def test_what_a_row_is_replaced_by(assert_reportable, plain):
    records, _ = decode(assert_reportable, message(plain), message(ROWS["heartbeat"]))
    follow(assert_reportable, records)


@given(st.integers(0, len(INSERT) - 1), PLAIN)
@example(0, None)
@example(6, None)
@example(9, math.inf)
@example(9, math.nan)
@example(9, "18446744073709551616")
@example(10, 1e300)
def test_no_damaged_change_vanishes(assert_reportable, at, plain):
    fields = copy.deepcopy(INSERT)
    fields[at] = plain
    records, well = decode(assert_reportable, message([[[fields], [], []]]))
    assert len(records) == (1 if well else 0)
    follow(assert_reportable, records)


@given(st.sampled_from(["keys", "new_values", "old_values"]), st.data())
def test_damaged_json(damaged, assert_reportable, name, data):
    at = ["keys", "new_values", "old_values"].index(name)
    row = copy.deepcopy(ROWS["data"])
    mod = row[0][0][0][6][0]
    mod[at] = damaged(data, mod[at].encode()).decode(errors="replace")
    follow(assert_reportable, decode(assert_reportable, message(row))[0])


@given(st.dictionaries(st.sampled_from([c.name for c in COLUMNS]) | TEXTS, JSON_VALUES, max_size=4))
@example({"c_INT64": [[[]]]})
@example({"c_NUMERIC": 1e300})
@example({"list": {"a": 1}})
@example({"id": math.inf})
def test_any_values_of_columns(assert_reportable, captured):
    """Values as the JSON parser gives them; what no JSON can hold is an error of its change."""
    text = json.dumps(captured)
    row = copy.deepcopy(ROWS["data"])
    row[0][0][0][6] = [['{"id":"7"}', text, "{}"]]
    records, well = decode(assert_reportable, message(row))
    assert well
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        (record,) = [one for one in records if isinstance(one, DataChangeRecord)]
        assert isinstance(record.mods[0].new_values, UnreadableValues)
    follow(assert_reportable, records)


@given(
    st.builds(
        DataChangeRecord,
        commit_timestamp_ns=st.integers(-(2**70), 2**70),
        record_sequence=TEXTS,
        server_transaction_id=st.text(max_size=5),
        is_last_record_in_transaction_in_partition=st.booleans(),
        table_name=st.sampled_from(["t", "u"]),
        columns=st.just(())
        | st.lists(
            st.builds(
                RecordColumn,
                st.sampled_from([c.name for c in COLUMNS]) | TEXTS,
                st.sampled_from([c.type for c in COLUMNS]) | st.builds(ColumnType, TEXTS),
                st.booleans(),
                st.integers(),
            ),
            max_size=3,
        ).map(tuple),
        mods=st.lists(
            st.builds(
                Mod,
                st.just({"id": "7"}) | st.dictionaries(st.just("id") | TEXTS, JSON_VALUES),
                st.just(NEW_VALUES)
                | st.dictionaries(st.sampled_from([c.name for c in COLUMNS]), JSON_VALUES),
                st.just({}),
            )
            | st.just(Mod({"id": "7"}, NEW_VALUES, {})),
            max_size=3,
        ).map(tuple),
        mod_type=st.sampled_from(["INSERT", "UPDATE", "DELETE"]),
        value_capture_type=TEXTS,
        number_of_records_in_transaction=st.integers(-(2**70), 2**70),
        number_of_partitions_in_transaction=st.integers(-(2**70), 2**70),
        transaction_tag=st.text(max_size=5),
        is_system_transaction=st.booleans(),
    )
)
def test_any_record_is_translated_or_refused(assert_reportable, record):
    translate(assert_reportable, record)


DEEP = '{"c_INT64":' + "[" * 1_000 + "]" * 1_000 + "}"
LONG_LIST = json.dumps({"list": [["x" * 1_000] * 1_000]})


@pytest.mark.timeout(60)
@pytest.mark.parametrize("text", [DEEP, LONG_LIST], ids=["deep", "long"])
def test_the_error_on_an_oversized_value_is_short(assert_reportable, text):
    row = copy.deepcopy(ROWS["data"])
    row[0][0][0][6] = [['{"id":"7"}', text, "{}"]]
    records, _ = decode(assert_reportable, message(row))
    follow(assert_reportable, records)


@given(st.text(), st.lists(st.text()).map(tuple), st.integers(-(2**70), 2**70))
@example("t", (), 253_402_300_799 * 10**9)
def test_any_child_is_announced_or_refused(assert_reportable, token, parents, start_ns):
    announce(assert_reportable, ChildPartition(token, parents, start_ns))


def test_the_undamaged_rows_are_read():
    for row in ROWS.values():
        records, well = decode(pytest.fail, message(row))
        assert well
        assert len(records) == 1
        follow(pytest.fail, records)
    assert issubclass(TableChanged, TidegateError)
