"""Records of any history, written in each form and read back as a client reads them, are the same.

What is compared is a plain description of the record, so that no form is the judge of another one.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from google.cloud.spanner_v1 import types as spanner
from hypothesis import given, settings
from hypothesis import strategies as st

from spanner_simulator.core.change_streams.records import DataChangeRecord
from spanner_simulator.core.timestamps import format_us
from spanner_simulator.server.encoding.change_rows_json import JsonRows
from spanner_simulator.server.encoding.change_rows_proto import ProtoRows
from spanner_simulator.server.encoding.change_rows_struct import CHANGE_RECORD_METADATA, StructRows
from spanner_simulator.server.messages import plain_of
from unit.core.change_streams.histories import MutableWorld, World


def described(record: DataChangeRecord) -> dict[str, Any]:
    return {
        "commit_timestamp": format_us(record.commit_timestamp_us),
        "record_sequence": record.record_sequence,
        "server_transaction_id": record.server_transaction_id,
        "is_last_record_in_transaction_in_partition": (
            record.is_last_record_in_transaction_in_partition
        ),
        "table_name": record.table_name,
        "column_types": [
            {
                "name": one.name,
                "type": json.loads(one.type_json),
                "is_primary_key": one.is_primary_key,
                "ordinal_position": one.ordinal_position,
            }
            for one in record.column_types
        ],
        "mods": [
            {"keys": mod.keys, "new_values": mod.new_values, "old_values": mod.old_values}
            for mod in record.mods
        ],
        "mod_type": record.mod_type,
        "value_capture_type": record.value_capture_type,
        "number_of_records_in_transaction": record.number_of_records_in_transaction,
        "number_of_partitions_in_transaction": record.number_of_partitions_in_transaction,
        "transaction_tag": record.transaction_tag,
        "is_system_transaction": record.is_system_transaction,
    }


def named(kind: Any, value: Any) -> Any:
    """A value by the names and types of its metadata."""
    match kind.code:
        case spanner.TypeCode.ARRAY:
            return [named(kind.array_element_type, one) for one in value]
        case spanner.TypeCode.STRUCT:
            fields = kind.struct_type.fields
            return {
                one.name: named(one.type_, part) for one, part in zip(fields, value, strict=True)
            }
        case spanner.TypeCode.JSON:
            return json.loads(value)
        case spanner.TypeCode.INT64:
            return int(value)
        case _:
            return value


def value_of(row: bytes) -> Any:
    (value,) = spanner.PartialResultSet.pb().FromString(row).values
    return plain_of(value)


def from_proto(text: str) -> dict[str, Any]:
    record: Any = spanner.ChangeStreamRecord.pb().FromString(base64.b64decode(text))
    data = record.data_change_record
    names = [one.name for one in data.column_metadata]

    def values(found: Any) -> dict[str, Any]:
        return {names[one.column_metadata_index]: plain_of(one.value) for one in found}

    time = data.commit_timestamp
    return {
        "commit_timestamp": format_us(time.seconds * 10**6 + time.nanos // 1000),
        "record_sequence": data.record_sequence,
        "server_transaction_id": data.server_transaction_id,
        "is_last_record_in_transaction_in_partition": (
            data.is_last_record_in_transaction_in_partition
        ),
        "table_name": data.table,
        "column_types": [
            {
                "name": one.name,
                "type": {"code": spanner.TypeCode(one.type_.code).name},
                "is_primary_key": one.is_primary_key,
                "ordinal_position": one.ordinal_position,
            }
            for one in data.column_metadata
        ],
        "mods": [
            {
                "keys": values(mod.keys),
                "new_values": values(mod.new_values),
                "old_values": values(mod.old_values),
            }
            for mod in data.mods
        ],
        "mod_type": type(data).ModType.Name(data.mod_type),
        "value_capture_type": type(data).ValueCaptureType.Name(data.value_capture_type),
        "number_of_records_in_transaction": data.number_of_records_in_transaction,
        "number_of_partitions_in_transaction": data.number_of_partitions_in_transaction,
        "transaction_tag": data.transaction_tag,
        "is_system_transaction": data.is_system_transaction,
    }


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_immutable_key_ranges_in_both_dialects(seed: int) -> None:
    world = World(seed)
    world.run(80)
    (field,) = spanner.ResultSetMetadata.deserialize(CHANGE_RECORD_METADATA).row_type.fields
    structs, texts = StructRows(), JsonRows("read_json_s")
    for _, record in world.records():
        assert isinstance(record, DataChangeRecord)
        (google,) = named(field.type_, value_of(structs.encode(record)))
        postgres = json.loads(value_of(texts.encode(record)))
        assert google == {
            "data_change_record": [described(record)],
            "heartbeat_record": [],
            "child_partitions_record": [],
        }
        assert postgres == {"data_change_record": described(record)}


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_mutable_key_ranges(seed: int) -> None:
    world = MutableWorld(seed)
    world.run(80)
    rows = ProtoRows("ChangeRecord", "GOOGLE_STANDARD_SQL")
    for _, record in world.records():
        text = value_of(rows.encode(record))
        if isinstance(record, DataChangeRecord):
            assert from_proto(text) == described(record)
