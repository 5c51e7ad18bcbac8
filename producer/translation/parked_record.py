"""The JSON of a parked change: Spanner's data change record with this one mod.

Field names are Spanner's, and `mod_number`.  Values are as Spanner sent them; values that could not
be read are a JSON string with their text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tidegate.producer.records import DataChangeRecord, Mod, RecordColumn, UnreadableValues
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.instants import format_rfc3339, parse_rfc3339_ns
from tidegate.schemas.tables import ColumnType

_TEXTS = (
    "record_sequence",
    "server_transaction_id",
    "table_name",
    "mod_type",
    "value_capture_type",
    "transaction_tag",
)
_NUMBERS = (
    "number_of_records_in_transaction",
    "number_of_partitions_in_transaction",
    "mod_number",
)
_FLAGS = ("is_last_record_in_transaction_in_partition", "is_system_transaction")
_KINDS: dict[str, type] = {
    "commit_timestamp": str,
    "column_types": list,
    "mods": list,
    **dict.fromkeys(_TEXTS, str),
    **dict.fromkeys(_NUMBERS, int),
    **dict.fromkeys(_FLAGS, bool),
}
_COLUMN_KINDS: dict[str, type] = {
    "name": str,
    "type": dict,
    "is_primary_key": bool,
    "ordinal_position": int,
}
_MOD_TYPES = ("INSERT", "UPDATE", "DELETE")


def write_parked_record(record: DataChangeRecord) -> bytes:
    """Return the JSON of a record with one mod; raises SchemaError if it does not fit."""
    (mod,) = record.mods
    try:
        commit_timestamp = format_rfc3339(record.commit_timestamp_ns)
        fields = {
            "commit_timestamp": commit_timestamp,
            "record_sequence": record.record_sequence,
            "server_transaction_id": record.server_transaction_id,
            "is_last_record_in_transaction_in_partition": (
                record.is_last_record_in_transaction_in_partition
            ),
            "table_name": record.table_name,
            "column_types": [_column_json(column) for column in record.columns],
            "mods": [
                {
                    "keys": dict(mod.keys),
                    "new_values": _values_json(mod.new_values),
                    "old_values": _values_json(mod.old_values),
                }
            ],
            "mod_type": record.mod_type,
            "value_capture_type": record.value_capture_type,
            "number_of_records_in_transaction": record.number_of_records_in_transaction,
            "number_of_partitions_in_transaction": record.number_of_partitions_in_transaction,
            "transaction_tag": record.transaction_tag,
            "is_system_transaction": record.is_system_transaction,
            "mod_number": record.first_mod_number,
        }
        text = json.dumps(fields, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode()
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise SchemaError("a record that JSON cannot hold", cause=str(error)) from error


def read_parked_record(
    content: bytes, read_values: Callable[[str, str], Mapping[str, Any]]
) -> DataChangeRecord:
    """Parse the JSON of `write_parked_record`.

    `read_values` parses values that could not be read when they were parked, from their text and
    the field's name.  Raises SchemaError for other bytes.
    """
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise SchemaError("a parked record that is not JSON", cause=str(error)) from error
    _require(fields, _KINDS, "a parked record")
    mods = [_mod(mod, read_values) for mod in fields["mods"]]
    if len(mods) != 1 or fields["mod_type"] not in _MOD_TYPES:
        raise SchemaError("a parked record with other than one change", mods=len(mods))
    return DataChangeRecord(
        commit_timestamp_ns=parse_rfc3339_ns(fields["commit_timestamp"]),
        columns=tuple(_column(column) for column in fields["column_types"]),
        mods=tuple(mods),
        first_mod_number=fields["mod_number"],
        **{name: fields[name] for name in (*_TEXTS, *_NUMBERS, *_FLAGS) if name != "mod_number"},
    )


# ---------------------------------------------------------------- parts


def _values_json(values: Mapping[str, Any]) -> object:
    return values.text if isinstance(values, UnreadableValues) else dict(values)


def _column_json(column: RecordColumn) -> dict[str, object]:
    return {
        "name": column.name,
        "type": _type_json(column.type),
        "is_primary_key": column.is_primary_key,
        "ordinal_position": column.ordinal,
    }


def _type_json(column_type: ColumnType) -> dict[str, object]:
    fields: dict[str, object] = {"code": column_type.code}
    if column_type.element is not None:
        fields["array_element_type"] = _type_json(column_type.element)
    if column_type.annotation:
        fields["type_annotation"] = column_type.annotation
    return fields


def _mod(mod: Any, read_values: Callable[[str, str], Mapping[str, Any]]) -> Mod:
    _require(mod, {"keys": dict}, "a parked record's change")
    values = []
    for name in ("new_values", "old_values"):
        value = mod.get(name)
        if isinstance(value, str):
            value = read_values(value, name)
        elif not isinstance(value, dict):
            raise SchemaError("a parked record's values are neither an object nor text", field=name)
        values.append(value)
    return Mod(mod["keys"], *values)


def _column(column: Any) -> RecordColumn:
    _require(column, _COLUMN_KINDS, "a parked record's column")
    return RecordColumn(
        column["name"],
        ColumnType.from_type_json(column["type"]),
        column["is_primary_key"],
        column["ordinal_position"],
    )


def _require(fields: Any, kinds: Mapping[str, type], name_of_object: str) -> None:
    """Raise SchemaError unless `fields` is an object with these fields."""
    if not isinstance(fields, dict):
        raise SchemaError(f"{name_of_object} is not a JSON object", kind=type(fields).__name__)
    for name, kind in kinds.items():
        if type(fields.get(name)) is not kind:
            raise SchemaError(f"{name_of_object} lacks a field", field=name, kind=kind.__name__)
