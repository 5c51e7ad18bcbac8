"""Change stream responses as the service sends them: serialised `PartialResultSet` messages.

Each change is an UPDATE of three of a table's eight columns, with old and new values.  Every record
is a transaction of its own, with its own commit timestamp.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from google.cloud.spanner_v1.types import PartialResultSet, StructType, Type, TypeCode
from google.protobuf.struct_pb2 import ListValue, Value

from tidegate.schemas.instants import NS_PER_US, format_rfc3339
from tidegate.schemas.tables import Column, ColumnType, TableSchema

START_NS = 1_767_225_600_000_000_000
STREAM = "Everything"
_RECORD_EVERY_US = 137
_COLUMNS = {
    "Id": "INT64", "Owner": "STRING", "Balance": "NUMERIC", "Branch": "STRING", "Opened": "DATE",
    "Active": "BOOL", "Score": "INT64", "Updated": "TIMESTAMP",
}  # fmt: skip
TABLE = TableSchema(
    "Accounts",
    tuple(
        Column(name, ColumnType(code), ordinal, 1 if ordinal == 1 else None)
        for ordinal, (name, code) in enumerate(_COLUMNS.items(), start=1)
    ),
)
_TOUCHED = ("Id", "Balance", "Score", "Updated")


@dataclass(frozen=True, slots=True)
class Case:
    """How the service cuts changes: rows in a response message, mods in a data change record.

    The records are of the tables in turn.
    """

    rows: int
    mods: int
    tables: int = 1


def table_name(number: int) -> str:
    """Return the name of a table, from 0 on; all have the same columns."""
    return f"{TABLE.name}{number}" if number else TABLE.name


class Fault(StrEnum):
    """Why a change cannot be published."""

    DAMAGED = "damaged"
    """A text that is no number in a column of numbers."""
    LARGE = "large"
    """More than `LARGE_BYTES`, which is to be more than its topic takes."""
    REFUSED = "refused"
    """A column of another type than the registered schema has: its table is refused."""


LARGE_BYTES = 120_000


def responses(case: Case, changes: int) -> list[bytes]:
    """Return the messages of one query that returns so many changes, metadata first."""
    records = changes // case.mods
    rows = [
        _row(_data_change(number, case.mods, written_ns(number + 1), table=number % case.tables))
        for number in range(records)
    ]
    first = PartialResultSet.pb()()
    first.metadata.row_type.CopyFrom(StructType.pb(_row_type()))
    return [
        first.SerializeToString(),
        *(_message(rows[at : at + case.rows]) for at in range(0, records, case.rows)),
    ]


def written_ns(records: int) -> int:
    """Return the commit time of the last of so many records."""
    return START_NS + records * _RECORD_EVERY_US * NS_PER_US


def records_before(at_ns: int) -> int:
    """Return how many records were written before a time."""
    return max(0, -((START_NS - at_ns) // (_RECORD_EVERY_US * NS_PER_US)) - 1)


def change_response(number: int, at_ns: int, *, fault: Fault | None = None) -> bytes:
    """Return a message with one change, committed at a time of its own."""
    change = _data_change(number, 1, at_ns // NS_PER_US * NS_PER_US)
    keys, new, old = change[6][0]
    match fault:
        case Fault.DAMAGED:
            new = json.dumps({"Balance": "damaged", "Score": "1"})
        case Fault.LARGE:
            change[5] = [_column(name) for name in ("Id", "Owner")]
            new, old = json.dumps({"Owner": "x" * LARGE_BYTES}), json.dumps({"Owner": ""})
        case Fault.REFUSED:
            change[5] = [_column(name) for name in ("Id", "Balance")]
            change[5] += [_column("Score", "STRING")]
            new, old = json.dumps({"Score": "high"}), json.dumps({"Score": "low"})
    change[6] = [[keys, new, old]]
    return _message([_row(change)])


def large_response(size_bytes: int) -> bytes:
    """Return a message with one change of one text, a little larger than this."""
    change = _data_change(1, 1, written_ns(1))
    change[5] = [_column(name) for name in ("Id", "Owner")]
    change[6] = [[json.dumps({"Id": "1"}), json.dumps({"Owner": "x" * size_bytes}), "{}"]]
    change[8] = "NEW_VALUES"
    return _message([_row(change)])


def heartbeat_response(at_ns: int) -> bytes:
    """Return a message with a heartbeat."""
    return _message([value([[[], [[format_rfc3339(at_ns)]], []]])])


def children_response(
    tokens: tuple[str, ...], *, parent: str = "", start_ns: int = START_NS
) -> list[bytes]:
    """Return the messages that name stream partitions: without a parent, those that exist."""
    message = PartialResultSet.pb()()
    message.metadata.row_type.CopyFrom(StructType.pb(_row_type()))
    parents = [parent] if parent else []
    listed = [[token, parents] for token in tokens]
    children = [format_rfc3339(start_ns), "00000000", listed]
    message.values.append(value([[[], [], [children]]]))
    return [message.SerializeToString()]


def _data_change(number: int, mods: int, at_ns: int, *, table: int = 0) -> list[Any]:
    return [
        format_rfc3339(at_ns), "00000000", f"OTQ5NTY0MDIzNTc1{number:08d}", True, table_name(table),
        [_column(name) for name in _TOUCHED],
        [_mod(number * mods + place, format_rfc3339(at_ns)) for place in range(mods)],
        "UPDATE", "OLD_AND_NEW_VALUES", "1", "1", "transfer", False,
    ]  # fmt: skip


def _column(name: str, code: str = "") -> list[Any]:
    """Return how a record shows a column; of another type than the table's with a code."""
    shown = json.dumps({"code": code or _COLUMNS[name]})
    return [name, shown, name == "Id", str(1 + list(_COLUMNS).index(name))]


def _mod(number: int, now: str) -> list[str]:
    new = {"Balance": f"{number}.25", "Score": str(number % 997), "Updated": now}
    old = {"Balance": f"{number}.5", "Score": "7", "Updated": format_rfc3339(START_NS)}
    return [json.dumps(one) for one in ({"Id": str(number)}, new, old)]


def _message(rows: list[Any]) -> bytes:
    return bytes(PartialResultSet.pb()(values=rows).SerializeToString())


def _row(data_change: list[Any]) -> Any:
    return value([[[data_change], [], []]])


def value(plain: Any) -> Any:
    """Return the protobuf Value of a boolean, a text or a list of such."""
    match plain:
        case bool():
            return Value(bool_value=plain)
        case str():
            return Value(string_value=plain)
        case _:
            return Value(list_value=ListValue(values=[value(item) for item in plain]))


# ---------------------------------------------------------------- the response's metadata

_STRING, _BOOL, _INT64 = (
    Type(code=code) for code in (TypeCode.STRING, TypeCode.BOOL, TypeCode.INT64)
)
_TIMESTAMP, _JSON = (Type(code=code) for code in (TypeCode.TIMESTAMP, TypeCode.JSON))


def _array_of(**fields: Type) -> Type:
    struct = StructType(
        fields=[StructType.Field(name=name, type_=kind) for name, kind in fields.items()]
    )
    element = Type(code=TypeCode.STRUCT, struct_type=struct)
    return Type(code=TypeCode.ARRAY, array_element_type=element)


def _row_type() -> StructType:
    data = {
        "commit_timestamp": _TIMESTAMP,
        "record_sequence": _STRING,
        "server_transaction_id": _STRING,
        "is_last_record_in_transaction_in_partition": _BOOL,
        "table_name": _STRING,
        "column_types": _array_of(
            name=_STRING, type=_JSON, is_primary_key=_BOOL, ordinal_position=_INT64
        ),
        "mods": _array_of(keys=_JSON, new_values=_JSON, old_values=_JSON),
        **dict.fromkeys(("mod_type", "value_capture_type"), _STRING),
        "number_of_records_in_transaction": _INT64,
        "number_of_partitions_in_transaction": _INT64,
        "transaction_tag": _STRING,
        "is_system_transaction": _BOOL,
    }
    tokens = Type(code=TypeCode.ARRAY, array_element_type=_STRING)
    children = {
        "start_timestamp": _TIMESTAMP,
        "record_sequence": _STRING,
        "child_partitions": _array_of(token=_STRING, parent_partition_tokens=tokens),
    }
    record = _array_of(
        data_change_record=_array_of(**data),
        heartbeat_record=_array_of(timestamp=_TIMESTAMP),
        child_partitions_record=_array_of(**children),
    )
    return StructType(fields=[StructType.Field(name="ChangeRecord", type_=record)])
