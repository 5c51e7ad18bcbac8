"""Responses of a PostgreSQL database, decoded and translated: messages, or a typed error.

Damage comes in the JSON's bytes and in its nested values.  Nothing vanishes: a row, once damaged,
is refused or still is one record.
"""

import copy
import json

from google.cloud.spanner_v1.types import PartialResultSet, StructType, Type, TypeCode
from google.protobuf.struct_pb2 import Value
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.test_fuzz_change_records import JSON_VALUES, NEW_VALUES, TABLE, follow, type_json
from tidegate.producer.spanner.decode import ColumnTypesCache
from tidegate.producer.spanner.decode_json import JsonResponseDecoder
from tidegate.schemas.errors import SchemaError

ROW_TYPE = StructType(fields=[StructType.Field(name="read_json_s", type_=Type(code=TypeCode.JSON))])
INSERT = {
    "commit_timestamp": "2024-01-02T03:04:05.678901Z",
    "record_sequence": "00000001",
    "server_transaction_id": "tx",
    "is_last_record_in_transaction_in_partition": True,
    "table_name": "public.t",
    "column_types": [
        {
            "name": column.name,
            "type": type_json(column.type),
            "is_primary_key": column.key_position is not None,
            "ordinal_position": column.ordinal,
        }
        for column in TABLE.columns
    ],
    "mods": [{"keys": {"id": "7"}, "new_values": NEW_VALUES, "old_values": {}}],
    "mod_type": "INSERT",
    "value_capture_type": "NEW_ROW",
    "number_of_records_in_transaction": 1,
    "number_of_partitions_in_transaction": 1,
    "transaction_tag": "",
    "is_system_transaction": False,
}
CHILDREN = {
    "start_timestamp": "2024-01-02T03:04:05Z",
    "record_sequence": "00000000",
    "child_partitions": [{"token": "a", "parent_partition_tokens": ["p"]}],
}
ROWS = (
    {"data_change_record": INSERT},
    {"heartbeat_record": {"timestamp": "2024-01-02T03:04:05Z"}},
    {"child_partitions_record": CHILDREN},
)


def decode(assert_reportable, text):
    message = PartialResultSet.pb()(values=[Value(string_value=text)])
    message.metadata.row_type.CopyFrom(StructType.pb(ROW_TYPE))
    decoder = JsonResponseDecoder(ColumnTypesCache())
    try:
        records = decoder.decode(message.SerializeToString())
        decoder.end()
    except SchemaError as error:
        assert_reportable(error)
        return []
    assert len(records) == 1
    return records


def places(value, path=()):
    yield path
    inner = value.items() if isinstance(value, dict) else ()
    for at, one in enumerate(value) if isinstance(value, list) else inner:
        yield from places(one, (*path, at))


def test_whole_rows_are_read(assert_reportable):
    for row in ROWS:
        records = decode(assert_reportable, json.dumps(row))
        assert len(records) == 1
        follow(assert_reportable, records)


@given(st.sampled_from(ROWS), st.data())
def test_damaged_values(assert_reportable, row, data):
    row = copy.deepcopy(row)
    (*path, last) = data.draw(st.sampled_from([path for path in places(row) if path]))
    target = row
    for at in path:
        target = target[at]
    if data.draw(st.booleans()):
        target[last] = data.draw(JSON_VALUES)
    else:
        del target[last]
    follow(assert_reportable, decode(assert_reportable, json.dumps(row)))


@given(st.sampled_from(ROWS), st.data())
def test_damaged_texts(assert_reportable, damaged, row, data):
    text = damaged(data, json.dumps(row).encode()).decode(errors="replace")
    follow(assert_reportable, decode(assert_reportable, text))


@given(JSON_VALUES)
def test_what_a_row_is_replaced_by(assert_reportable, value):
    follow(assert_reportable, decode(assert_reportable, json.dumps(value)))
