"""The JSON of a parked change: Spanner's names and values, and the way back."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.producer.translation.test_translator import RECORD
from tidegate.producer.records import Mod, RecordColumn, UnreadableValues
from tidegate.producer.translation.parked_record import read_parked_record, write_parked_record
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.tables import ColumnType

DAMAGED = SchemaError("damaged")
FIELDS = json.loads(write_parked_record(RECORD))


def read_values(text, name):
    return {"read": text, "of": name}


def test_fields_have_spanners_names():
    columns = (
        RecordColumn("id", ColumnType("INT64"), True, 1),
        RecordColumn("tags", ColumnType("ARRAY", ColumnType("STRING")), False, 2),
        RecordColumn("n", ColumnType("NUMERIC", annotation="PG_NUMERIC"), False, 3),
    )
    mods = (Mod({"id": "1"}, {}, {}), Mod({"id": "7"}, {"tags": ["ä", None]}, {"n": "1.50"}))
    record = RECORD._replace(columns=columns, mods=mods, mod_type="UPDATE").part(1)

    assert json.loads(write_parked_record(record)) == {
        "commit_timestamp": "2023-11-14T22:13:20.123456Z",
        "record_sequence": "00000003",
        "server_transaction_id": "tx",
        "is_last_record_in_transaction_in_partition": True,
        "table_name": "accounts",
        "column_types": [
            {
                "name": "id",
                "type": {"code": "INT64"},
                "is_primary_key": True,
                "ordinal_position": 1,
            },
            {
                "name": "tags",
                "type": {"code": "ARRAY", "array_element_type": {"code": "STRING"}},
                "is_primary_key": False,
                "ordinal_position": 2,
            },
            {
                "name": "n",
                "type": {"code": "NUMERIC", "type_annotation": "PG_NUMERIC"},
                "is_primary_key": False,
                "ordinal_position": 3,
            },
        ],
        "mods": [
            {"keys": {"id": "7"}, "new_values": {"tags": ["ä", None]}, "old_values": {"n": "1.50"}}
        ],
        "mod_type": "UPDATE",
        "value_capture_type": "OLD_AND_NEW_VALUES",
        "number_of_records_in_transaction": 2,
        "number_of_partitions_in_transaction": 1,
        "transaction_tag": "tag",
        "is_system_transaction": False,
        "mod_number": 1,
    }


VALUES = st.dictionaries(
    st.text(max_size=3),
    st.recursive(
        st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3),
        max_leaves=4,
    ),
    max_size=3,
)  # fmt: skip


@given(VALUES, VALUES, VALUES, st.integers(0, 2**62), st.integers(0, 9))
@example({"f": -0.0}, {"f": 5e-324}, {"f": 1.7976931348623157e308}, 1, 0)
def test_what_is_written_is_read_again(keys, new, old, commit_ns, number):
    record = RECORD._replace(
        mods=(Mod(keys, new, old),), commit_timestamp_ns=commit_ns, first_mod_number=number
    )

    again = read_parked_record(write_parked_record(record), read_values)

    assert again == record
    assert repr(again.mods) == repr(record.mods)


def test_values_that_could_not_be_read_are_their_text():
    mods = (Mod({"id": "1"}, UnreadableValues('{"a":', DAMAGED), UnreadableValues("", DAMAGED)),)
    content = write_parked_record(RECORD._replace(mods=mods))

    assert json.loads(content)["mods"][0]["new_values"] == '{"a":'
    (mod,) = read_parked_record(content, read_values).mods
    assert mod.new_values == {"read": '{"a":', "of": "new_values"}
    assert mod.old_values == {"read": "", "of": "old_values"}


@pytest.mark.parametrize("value", [float("nan"), b"bytes", "\ud800"])
def test_what_json_cannot_hold_is_a_schema_error(value):
    with pytest.raises(SchemaError):
        write_parked_record(RECORD._replace(mods=(Mod({"id": "1"}, {"a": value}, {}),)))


@pytest.mark.parametrize(
    "change",
    [
        {"commit_timestamp": "yesterday"},
        {"mods": []},
        {"mods": [{"keys": {}, "new_values": {}, "old_values": {}}] * 2},
        {"mods": [{"keys": "{}", "new_values": {}, "old_values": {}}]},
        {"mods": [{"keys": {}, "new_values": None, "old_values": {}}]},
        {"mods": [5]},
        {"mod_type": "UPSERT"},
        {"mod_number": True},
        {"mod_number": "1"},
        {"column_types": [{"name": "id"}]},
        {
            "column_types": [
                {"name": "id", "type": {}, "is_primary_key": True, "ordinal_position": 1}
            ]
        },
        {"table_name": None},
        {"is_system_transaction": 0},
    ],
)
def test_another_json_is_refused(change):
    with pytest.raises(SchemaError):
        read_parked_record(json.dumps({**FIELDS, **change}).encode(), read_values)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[]", b"null", b"[" * 100_000])
def test_other_bytes_are_refused(content):
    with pytest.raises(SchemaError):
        read_parked_record(content, read_values)
