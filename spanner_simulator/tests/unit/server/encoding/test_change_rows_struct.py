"""Small records in both forms of immutable key ranges, and values of any size."""

from __future__ import annotations

import json
from typing import Any

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
from spanner_simulator.server.encoding.change_rows import RowForm
from spanner_simulator.server.encoding.change_rows_json import JsonRows
from spanner_simulator.server.encoding.change_rows_struct import StructRows
from spanner_simulator.server.messages import plain_of

CHILDREN = ChildPartitionsRecord(1_000, "00000000", (Child("c", ("p", "q")), Child("d", ())))


def decode(form: RowForm, row: StreamRow) -> Any:
    (value,) = spanner.PartialResultSet.pb().FromString(form.encode(row)).values
    return plain_of(value)


def test_a_heartbeat_and_children() -> None:
    struct, text = StructRows(), JsonRows("read_json_s")
    start = "1970-01-01T00:00:00.000001Z"

    assert decode(struct, HeartbeatRecord(1_000)) == [[[], [[start]], []]]
    assert (
        decode(text, HeartbeatRecord(1_000)) == f'{{"heartbeat_record":{{"timestamp":"{start}"}}}}'
    )
    assert decode(struct, CHILDREN) == [
        [[], [], [[start, "00000000", [["c", ["p", "q"]], ["d", []]]]]]
    ]
    assert decode(text, CHILDREN) == (
        '{"child_partitions_record":{"child_partitions":[{"parent_partition_tokens":["p","q"],'
        '"token":"c"},{"parent_partition_tokens":[],"token":"d"}],"record_sequence":"00000000",'
        f'"start_timestamp":"{start}"}}}}'
    )


@pytest.mark.parametrize("size", [0, 100, 128, 16_384, 3_000_000])
def test_values_of_any_size(size: int) -> None:
    for count in (1, 3):
        new = {"a": "ä" * size, "b": None}
        record = DataChangeRecord(
            commit_timestamp_us=1_500_000,
            record_sequence="00000001",
            server_transaction_id="7",
            is_last_record_in_transaction_in_partition=True,
            table_name="T",
            column_types=(ColumnType("K", '{"code":"INT64"}', True, 1),),
            mods=(Mod({"K": "1"}, new, {}),) * count,
            mod_type="UPDATE",
            value_capture_type="OLD_AND_NEW_VALUES",
            number_of_records_in_transaction=3,
            number_of_partitions_in_transaction=2,
            transaction_tag="tag",
            is_system_transaction=False,
        )
        ((((data,), heartbeats, children),),) = (decode(StructRows(), record),)

        assert (heartbeats, children) == ([], [])
        assert len(data) == 13
        assert [json.loads(one[1]) for one in data[6]] == [new] * count
