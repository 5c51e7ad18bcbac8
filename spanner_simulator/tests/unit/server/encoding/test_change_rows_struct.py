from __future__ import annotations

import json

import pytest
from google.cloud.spanner_v1 import types as spanner

from spanner_simulator.core.change_streams.records import (
    Child,
    ChildPartitionsRecord,
    ColumnType,
    DataChangeRecord,
    HeartbeatRecord,
    StreamRow,
)
from spanner_simulator.core.change_streams.row_mod import Mod
from spanner_simulator.server.encoding.change_rows_struct import (
    CHANGE_RECORD_METADATA,
    StructRows,
)
from spanner_simulator.server.messages import plain_of

RECORD = DataChangeRecord(
    commit_timestamp_us=1_500_000,
    record_sequence="00000001",
    server_transaction_id="7",
    is_last_record_in_transaction_in_partition=True,
    table_name="T",
    column_types=(ColumnType("K", '{"code":"INT64"}', True, 1),),
    mods=(Mod({"K": "1"}, {"b": None, "a": 1.5}, {}),),
    mod_type="UPDATE",
    value_capture_type="OLD_AND_NEW_VALUES",
    number_of_records_in_transaction=3,
    number_of_partitions_in_transaction=2,
    transaction_tag="tag",
    is_system_transaction=False,
)


def decode(row: StreamRow) -> list:
    message = spanner.PartialResultSet.pb().FromString(StructRows().encode(row))
    (value,) = message.values
    ((fields,),) = (plain_of(value),)
    return fields


def named(kind: object, value: object) -> object:
    """A value by the names of its type: what a reader does that decodes by metadata."""
    if kind.code == spanner.TypeCode.ARRAY:
        return [named(kind.array_element_type, one) for one in value]
    if kind.code == spanner.TypeCode.STRUCT:
        fields = kind.struct_type.fields
        return {one.name: named(one.type_, part) for one, part in zip(fields, value, strict=True)}
    return value


def test_a_data_change_record_field_by_field() -> None:
    metadata = spanner.ResultSetMetadata.deserialize(CHANGE_RECORD_METADATA)
    (field,) = metadata.row_type.fields
    (row,) = named(field.type_, [decode(RECORD)])

    assert field.name == "ChangeRecord"
    assert row == {
        "data_change_record": [
            {
                "commit_timestamp": "1970-01-01T00:00:01.5Z",
                "record_sequence": "00000001",
                "server_transaction_id": "7",
                "is_last_record_in_transaction_in_partition": True,
                "table_name": "T",
                "column_types": [
                    {
                        "name": "K",
                        "type": '{"code":"INT64"}',
                        "is_primary_key": True,
                        "ordinal_position": "1",
                    }
                ],
                "mods": [
                    {"keys": '{"K":"1"}', "new_values": '{"a":1.5,"b":null}', "old_values": "{}"}
                ],
                "mod_type": "UPDATE",
                "value_capture_type": "OLD_AND_NEW_VALUES",
                "number_of_records_in_transaction": "3",
                "number_of_partitions_in_transaction": "2",
                "transaction_tag": "tag",
                "is_system_transaction": False,
            }
        ],
        "heartbeat_record": [],
        "child_partitions_record": [],
    }


def test_a_heartbeat_and_children() -> None:
    children = ChildPartitionsRecord(1, "00000000", (Child("c", ("p", "q")), Child("d", ())))

    assert decode(HeartbeatRecord(1_000)) == [[], [["1970-01-01T00:00:00.000001Z"]], []]
    assert decode(children) == [
        [],
        [],
        [["1970-01-01T00:00:00.000000001Z", "00000000", [["c", ["p", "q"]], ["d", []]]]],
    ]


def test_keys_of_a_mod_are_alphabetical() -> None:
    _, new_values, _ = decode(RECORD)[0][0][6][0]

    assert list(json.loads(new_values)) == ["a", "b"]


@pytest.mark.parametrize("size", [0, 1, 60, 100, 120, 127, 128, 5_000, 16_000, 16_384, 3_000_000])
def test_values_of_any_size(size: int) -> None:
    for mods in (1, 3):
        new = {"a": "ä" * size}
        record = RECORD._replace(mods=(Mod({"K": "1"}, new, {}),) * mods)
        ((data,), heartbeats, children) = decode(record)

        assert (heartbeats, children) == ([], [])
        assert len(data) == 13
        assert [json.loads(one[1]) for one in data[6]] == [new] * mods
