"""Translation of any values of any types, compared with what an independent reader finds.

The oracle is fastavro with its logical types: what it reads has to be what the JSON said.
"""

import math
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.any_schema.changes import worlds
from tests.any_schema.memory_lane import differences
from tests.any_schema.tables import NAMES_AVRO_LACKS, tables, with_name
from tests.any_schema.values import KINDS, values
from tests.unit.producer.translation.translation_building import RECORD, columns_of, read_framed
from tidegate.producer.records import Mod
from tidegate.producer.translation.table_registrar import TableRegistrar
from tidegate.producer.translation.translator import Translator
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.order_key import OrderKey, sequence_pair
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.tables import Column, ColumnType, TableSchema
from tidegate.schemas.topics import TopicNames

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def json_and_meaning(kind):
    """Strategy: values of a type as JSON has them, each with what fastavro makes of it."""

    def pair(value):
        meant = value
        if kind.code == "TIMESTAMP":
            meant = EPOCH + timedelta(microseconds=value // 1_000)
        return kind.as_json(value), meant

    return values(kind).map(pair)


# For each type: what the JSON holds, and what a reader has to get.
VALUES = {kind.code: json_and_meaning(kind) for kind in KINDS if not (kind.of or kind.annotation)}
TABLE = TableSchema(
    "t",
    (*(Column(f"c_{code}", ColumnType(code), 1 + n, key_position=14 - n if n < 3 else None)
       for n, code in enumerate(VALUES)),
     *(Column(f"a_{code}", ColumnType("ARRAY", ColumnType(code)), 40 + n)
       for n, code in enumerate(VALUES)),
     Column("pg", ColumnType("NUMERIC", annotation="PG_NUMERIC"), 90)),
)  # fmt: skip
KEY_NAMES = [column.name for column in TABLE.key_columns]
REGISTRY = InMemorySchemaRegistry()
COMPILED = Translator({"t": TableRegistrar(TopicNames("p"), REGISTRY).register(TABLE)},
                      change_stream="S")  # fmt: skip


def of(column):
    """Pairs of (JSON value, what a reader gets), null included."""
    if column.name == "pg":
        some = st.decimals(allow_nan=False, allow_infinity=False).map(str).map(lambda n: (n, n))
    elif column.type.element is not None:
        item = st.just((None, None)) | VALUES[column.type.element.code]
        some = st.lists(item, max_size=3).map(
            lambda pairs: ([one for one, _ in pairs], [meant for _, meant in pairs])
        )
    else:
        some = VALUES[column.type.code]
    return st.just((None, None)) | some


KEYS = st.fixed_dictionaries({column.name: of(column) for column in TABLE.key_columns})
OTHERS = {column.name: of(column) for column in TABLE.columns if column.key_position is None}


# Some columns, or all, or all but one: where the list of names begins and ends to be needed.
CAPTURED = st.fixed_dictionaries({}, optional=OTHERS) | st.builds(
    lambda row, left_out: {name: value for name, value in row.items() if name != left_out},
    st.fixed_dictionaries(OTHERS),
    st.none() | st.sampled_from(sorted(OTHERS)),
)
MODS = st.lists(st.tuples(KEYS, CAPTURED, CAPTURED), max_size=3)
SEQUENCES = st.integers(0, 2**64 - 1).map(lambda n: f"{n:08d}")


def left(pairs):
    return {name: json_value for name, (json_value, _) in pairs.items()}


def right(pairs):
    return {name: meaning for name, (_, meaning) in pairs.items()}


def record(mods, mod_type, commit_us, sequence):
    return RECORD._replace(
        commit_timestamp_ns=commit_us * 1000 + 999, record_sequence=sequence, mod_type=mod_type,
        columns=columns_of(TABLE),
        mods=tuple(Mod(left(k), left(new), left(old)) for k, new, old in mods),
        value_capture_type="OLD_AND_NEW_VALUES",
    )  # fmt: skip


def read(framed):
    return read_framed(framed, REGISTRY.schema)


def same(got, meant):
    """Equality in which NaN is itself, and types count."""
    if isinstance(meant, list):
        return len(got) == len(meant) and all(map(same, got, meant))
    if isinstance(meant, float) and math.isnan(meant):
        return isinstance(got, float) and math.isnan(got)
    if isinstance(meant, date | timedelta | uuid.UUID | Decimal | bytes | str | bool):
        return type(got) is type(meant) and got == meant
    return got == meant


def assert_row(got, names, meant):
    """A row holds what was captured, null elsewhere, and says which is which."""
    if meant is None:
        assert got is names is None
        return
    everything = [column.name for column in TABLE.columns]
    assert list(got) == everything
    assert all(same(got[name], meant.get(name)) for name in everything)
    assert names == [name for name in everything if name in meant]


@pytest.mark.rule("spanner-mods", "spanner-mod-type")
@settings(max_examples=40)
@given(
    MODS, st.sampled_from(["INSERT", "UPDATE", "DELETE"]), st.integers(0, 2**53), SEQUENCES
)  # fmt: skip
def test_what_was_captured_is_what_a_reader_gets(mods, mod_type, commit_us, sequence):
    translated = COMPILED.translate(record(mods, mod_type, commit_us, sequence), token="k")
    assert translated.commit_timestamp_us == commit_us
    assert len(translated.messages) == len(mods)
    places = []
    for number, (message, (keys, new, old)) in enumerate(
        zip(translated.messages, mods, strict=True)
    ):
        assert message.mod == mod_type[:1].encode()
        value = read(message.value)
        assert value["mod_type"] == mod_type
        meant = right(keys)
        assert_row(value["new_values"], value["new_columns"],
                   None if mod_type == "DELETE" else {**right(new), **meant})  # fmt: skip
        has_old_row = mod_type == "DELETE" or (mod_type == "UPDATE" and old)
        assert_row(value["old_values"], value["old_columns"],
                   {**right(old), **meant} if has_old_row else None)  # fmt: skip
        key = read(message.key)
        assert list(key) == KEY_NAMES
        assert all(same(key[name], meant[name]) for name in KEY_NAMES)
        source = value["source"]
        commit = EPOCH + timedelta(microseconds=commit_us)
        assert (source["commit_timestamp"], source["mod_number"]) == (commit, number)
        assert source["record_sequence"] == sequence
        places.append(message.order_key)
        expected = OrderKey(commit_us, "tx", sequence_pair(sequence), number)
        assert OrderKey.decode(message.order_key) == expected
    assert places == sorted(set(places))


@settings(max_examples=60)
@given(worlds())
def test_worlds_of_any_schema_are_read_as_they_were_committed(world):
    assert differences(world) == []


@settings(max_examples=20)
@given(tables(columns_max=8), st.sampled_from(NAMES_AVRO_LACKS))
def test_a_column_whose_name_avro_lacks_is_named(table, name):
    registrar = TableRegistrar(TopicNames("p"), InMemorySchemaRegistry())
    with pytest.raises(SchemaError) as caught:
        registrar.register(with_name(table, name).schema())
    assert (caught.value.fields["table"], caught.value.fields["column"]) == (table.name, name)
