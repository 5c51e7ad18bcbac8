"""Compiled writers write the bytes that fastavro writes, or refuse."""

import io
import math
import struct
from copy import deepcopy

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.producer.adapters.avro_writer import compile_writer
from tidegate.schemas.change_schema import key_schema, value_schema
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.tables import Column, ColumnType, TableSchema

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
LONG = st.integers(-(2**63), 2**63 - 1)
PLAIN = {
    "INT64": LONG,
    "ENUM": LONG,
    "FLOAT32": st.floats(width=32, allow_nan=False),
    "FLOAT64": st.floats(allow_nan=False),
    "BOOL": st.booleans(),
    "STRING": TEXT,
    "JSON": TEXT,
    "UUID": TEXT,
    "INTERVAL": TEXT,
    "BYTES": st.binary(),
    "PROTO": st.binary(),
    "NUMERIC": st.binary(min_size=1, max_size=16),
    "DATE": st.integers(-(2**31), 2**31 - 1),
    "TIMESTAMP": LONG,
}
TABLE = TableSchema(
    "t",
    (
        Column("id", ColumnType("STRING"), 1, key_position=1),
        Column("number", ColumnType("INT64"), 2, key_position=2),
        *(Column(f"c_{code}", ColumnType(code), 3 + n) for n, code in enumerate(PLAIN)),
        *(Column(f"a_{code}", ColumnType("ARRAY", ColumnType(code)), 40 + n)
          for n, code in enumerate(PLAIN)),
    ),
)  # fmt: skip
VALUE_SCHEMA, KEY_SCHEMA = value_schema("bank.t", TABLE), key_schema("bank.t", TABLE)
WRITE_VALUE, WRITE_KEY = compile_writer(VALUE_SCHEMA), compile_writer(KEY_SCHEMA)


REFUSALS = (TypeError, OverflowError, AttributeError, KeyError, ValueError, struct.error)


def of_column(column):
    if column.type.element is not None:
        return st.lists(st.none() | PLAIN[column.type.element.code], max_size=3)
    return PLAIN[column.type.code]


ROW = st.fixed_dictionaries(
    {}, optional={column.name: st.none() | of_column(column) for column in TABLE.columns}
)
NAMES = st.none() | st.lists(TEXT, max_size=4)
SOURCE = st.fixed_dictionaries(
    {
        "commit_timestamp": LONG,
        "server_transaction_id": TEXT,
        "record_sequence": TEXT,
        "mod_number": st.integers(0, 2**31 - 1),
        "is_last_record_in_transaction_in_partition": st.booleans(),
        "number_of_records_in_transaction": LONG,
        "number_of_partitions_in_transaction": LONG,
        "transaction_tag": TEXT,
        "is_system_transaction": st.booleans(),
        "value_capture_type": TEXT,
        "change_stream": TEXT,
        "partition_token": TEXT,
    }
)
CHANGE = st.fixed_dictionaries(
    {
        "mod_type": st.sampled_from(["INSERT", "UPDATE", "DELETE"]),
        "new_values": st.none() | ROW,
        "old_values": st.none() | ROW,
        "new_columns": NAMES,
        "old_columns": NAMES,
        "source": SOURCE,
    }
)


def by_fastavro(schema, datum):
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(deepcopy(schema)), datum)
    return buffer.getvalue()


def compiled(write, datum):
    out = bytearray()
    write(out, datum)
    return bytes(out)


@given(CHANGE)
def test_values_are_those_of_fastavro(change):
    assert compiled(WRITE_VALUE, change) == by_fastavro(VALUE_SCHEMA, change)


@given(st.fixed_dictionaries({"id": st.none() | TEXT, "number": st.none() | LONG}))
def test_keys_are_those_of_fastavro(key):
    assert compiled(WRITE_KEY, key) == by_fastavro(KEY_SCHEMA, key)


@pytest.mark.parametrize("schema", ["float", "double"])
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, -0.0])
def test_special_floats(schema, number):
    assert compiled(compile_writer(schema), number) == by_fastavro(schema, number)


@pytest.mark.parametrize(
    "number", [0, -1, 1, 63, 64, 4095, 4096, -4096, 2**31, 2**63 - 1, -(2**63)]
)
def test_integers_at_the_edges(number):
    assert compiled(compile_writer("long"), number) == by_fastavro("long", number)


@pytest.mark.parametrize("length", [0, 1, 63, 64, 4095, 4096, 100_000])
def test_lengths(length):
    assert compiled(compile_writer("string"), "x" * length) == by_fastavro("string", "x" * length)
    items = {"type": "array", "items": "int"}
    assert compiled(compile_writer(items), [5] * length) == by_fastavro(items, [5] * length)


@pytest.mark.parametrize(
    ("schema", "value"),
    [("long", 2**63), ("long", -(2**63) - 1), ("int", 2**31), ("long", "1"), ("long", 1.5),
     ("long", 5e9), ("string", b"x"), ("string", None), ("bytes", "x"), ("boolean", "true"),
     ("boolean", 2), ("float", 1e39), ("double", "1"),
     ({"type": "enum", "name": "E", "symbols": ["A"]}, "B"),
     ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}, {})],
)  # fmt: skip
def test_a_value_of_another_type_is_refused(schema, value):
    with pytest.raises(
        (TypeError, OverflowError, AttributeError, KeyError, ValueError, struct.error)
    ):
        compiled(compile_writer(schema), value)


@pytest.mark.parametrize(
    "schema",
    ["null", "Unknown", ["null", "long", "string"], ["long", "null"],
     {"type": "map", "values": "long"}, {"type": "fixed", "name": "F", "size": 8}],
)  # fmt: skip
def test_a_schema_beyond_the_contracts_is_refused(schema):
    with pytest.raises(SchemaError):
        compile_writer(schema)


def test_compiling_leaves_the_schema_as_it_is():
    before = deepcopy(VALUE_SCHEMA)
    compile_writer(VALUE_SCHEMA)
    assert before == VALUE_SCHEMA
