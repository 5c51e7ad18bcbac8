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
    PartitionEndRecord,
    StreamRow,
)
from spanner_simulator.core.change_streams.row_mod import Mod
from spanner_simulator.server.encoding.change_rows_json import JsonRows

NUMERIC = '{"code":"NUMERIC","type_annotation":"PG_NUMERIC"}'
RECORD = DataChangeRecord(
    commit_timestamp_us=1_500_000,
    record_sequence="00000001",
    server_transaction_id="7",
    is_last_record_in_transaction_in_partition=True,
    table_name="t",
    column_types=(
        ColumnType("k", '{"code":"INT64"}', True, 1),
        ColumnType("n", NUMERIC, False, 2),
    ),
    mods=(Mod({"k": "1"}, {"n": "1.50", "a": ["1", None]}, {}),),
    mod_type="UPDATE",
    value_capture_type="OLD_AND_NEW_VALUES",
    number_of_records_in_transaction=3,
    number_of_partitions_in_transaction=2,
    transaction_tag="tag",
    is_system_transaction=False,
)


def text(row: StreamRow) -> str:
    message = spanner.PartialResultSet.pb().FromString(JsonRows("read_json_s").encode(row))
    (value,) = message.values
    found: str = value.string_value
    return found


def test_a_data_change_record_is_one_object_with_alphabetical_keys() -> None:
    expected = {
        "data_change_record": {
            "column_types": [
                {
                    "is_primary_key": True,
                    "name": "k",
                    "ordinal_position": 1,
                    "type": {"code": "INT64"},
                },
                {
                    "is_primary_key": False,
                    "name": "n",
                    "ordinal_position": 2,
                    "type": {"code": "NUMERIC", "type_annotation": "PG_NUMERIC"},
                },
            ],
            "commit_timestamp": "1970-01-01T00:00:01.5Z",
            "is_last_record_in_transaction_in_partition": True,
            "is_system_transaction": False,
            "mod_type": "UPDATE",
            "mods": [
                {
                    "keys": {"k": "1"},
                    "new_values": {"a": ["1", None], "n": "1.50"},
                    "old_values": {},
                }
            ],
            "number_of_partitions_in_transaction": 2,
            "number_of_records_in_transaction": 3,
            "record_sequence": "00000001",
            "server_transaction_id": "7",
            "table_name": "t",
            "transaction_tag": "tag",
            "value_capture_type": "OLD_AND_NEW_VALUES",
        }
    }

    assert text(RECORD) == json.dumps(expected, separators=(",", ":"), sort_keys=True)


def test_a_heartbeat_and_children() -> None:
    children = ChildPartitionsRecord(1_000, "00000000", (Child("c", ("p", "q")), Child("d", ())))

    assert text(HeartbeatRecord(2_000)) == (
        '{"heartbeat_record":{"timestamp":"1970-01-01T00:00:00.000002Z"}}'
    )
    assert text(children) == (
        '{"child_partitions_record":{"child_partitions":[{"parent_partition_tokens":["p","q"],'
        '"token":"c"},{"parent_partition_tokens":[],"token":"d"}],"record_sequence":"00000000",'
        '"start_timestamp":"1970-01-01T00:00:00.000001Z"}}'
    )


def test_records_of_mutable_key_ranges_have_no_such_form() -> None:
    with pytest.raises(TypeError):
        text(PartitionEndRecord(1, "0", "t"))
