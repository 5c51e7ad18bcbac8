"""Reads a change stream to a fixed end, following children, into records of one form.

Both dialects, nested lists and JSON, give the same `DataRecord`, values still in plain form.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from differential.kinds import GOOGLE, Dialect
from differential.side import Failure, Rows, Side

_TIMESTAMP = {"code": "TIMESTAMP"}
_HEARTBEAT_MS = "10000"


@dataclass(frozen=True, slots=True)
class ColumnType:
    """An entry of column_types; `type` is its JSON, parsed."""

    name: str
    type: Any
    is_primary_key: bool
    ordinal_position: int


@dataclass(frozen=True, slots=True)
class Mod:
    """One row's change: parsed keys, new_values, old_values; `nulls` names those that are null."""

    keys: dict[str, Any]
    new: dict[str, Any]
    old: dict[str, Any]
    nulls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DataRecord:
    """A data change record; commit timestamps end in Z, whatever the dialect printed."""

    token: str
    commit_timestamp: str
    sequence: str
    transaction: str
    is_last: bool
    table: str
    columns: tuple[ColumnType, ...]
    mods: tuple[Mod, ...]
    mod_type: str
    capture_type: str
    record_count: int
    partition_count: int
    tag: str
    is_system: bool


@dataclass(slots=True)
class StreamReading:
    """What a stream gave: data records as each stream partition had them, and what went wrong."""

    name: str
    start: str
    end: str
    metadata: Any = None
    records: list[DataRecord] = field(default_factory=list)
    parents: dict[str, frozenset[str]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


def read_stream(
    side: Side, name: str, *, dialect: Dialect, start: str, end: str
) -> StreamReading | Failure:
    """All that a stream has from `start` to `end`, both inclusive, or its first query's failure."""
    reading = StreamReading(name, start, end)
    todo: list[tuple[str | None, str]] = [(None, start)]
    seen: set[str] = set()
    while todo:
        token, begin = todo.pop(0)
        rows = _query(side, name, dialect, token=token, start=begin, end=end)
        if isinstance(rows, Failure):
            if token is None:
                return rows
            reading.faults.append(f"query of a stream partition: {rows.code} {rows.message}")
            continue
        reading.metadata = reading.metadata or rows.columns
        told = _Told(end)
        for kind, record in _records(rows, dialect):
            reading.faults += told.faults(kind, record)
            if kind == "data":
                reading.records.append(_data_record(record, token or ""))
            elif kind == "children":
                for child in record["child_partitions"]:
                    if child["token"] in seen:
                        continue
                    seen.add(child["token"])
                    parents = frozenset(one for one in child["parent_partition_tokens"] if one)
                    reading.parents[child["token"]] = parents
                    todo.append((child["token"], _z(record["start_timestamp"])))
    return reading


class _Told:
    """One query's rows as they come: what a heartbeat promises, and children, come true."""

    def __init__(self, end: str) -> None:
        self._end = _z(end)
        self._heartbeat = ""
        self._has_ended = False

    def faults(self, kind: str, record: dict[str, Any]) -> Iterator[str]:
        if kind == "children":
            self._has_ended = True
            return
        if self._has_ended:
            yield f"{kind} after the children of a stream partition"
        at = _z(record["timestamp" if kind == "heartbeat" else "commit_timestamp"])
        if at <= self._heartbeat:
            yield f"{kind} at {at} after a heartbeat at {self._heartbeat}"
        if kind == "heartbeat":
            self._heartbeat = at
            if at > self._end:
                yield f"a heartbeat at {at}, after the query's end at {self._end}"


def _query(
    side: Side, name: str, dialect: Dialect, *, token: str | None, start: str, end: str
) -> Rows | Failure:
    values: tuple[tuple[Any, dict[str, str]], ...] = (
        (start, _TIMESTAMP),
        (end, _TIMESTAMP),
        (token, {"code": "STRING"}),
        (_HEARTBEAT_MS, {"code": "INT64"}),
    )
    parameters = {f"p{number}": one for number, one in enumerate(values, start=1)}
    if dialect == GOOGLE:
        sql = f"SELECT ChangeRecord FROM READ_{name}(@p1, @p2, @p3, @p4)"
    else:
        sql = f'SELECT * FROM "spanner"."read_json_{name}"($1, $2, $3, $4, null)'
    return side.stream(sql, parameters)


def _records(rows: Rows, dialect: Dialect) -> Iterator[tuple[str, dict[str, Any]]]:
    """(data, heartbeat or children; the record with its fields by name)."""
    short = {
        "data_change_record": "data",
        "heartbeat_record": "heartbeat",
        "child_partitions_record": "children",
    }
    for (held,) in rows.rows:
        if dialect == GOOGLE:
            kind = rows.columns[0][1]["arrayElementType"]
            for element in held:
                for name, records in _named(element, kind).items():
                    for record in records or ():
                        yield short[name], record
        else:
            for name, record in json.loads(held).items():
                yield short[name], record


def _named(data: Any, kind: Any) -> Any:
    """Nested lists to dictionaries by the type that the result states."""
    if data is None:
        return None
    match kind["code"]:
        case "ARRAY":
            return [_named(item, kind["arrayElementType"]) for item in data]
        case "STRUCT":
            fields = kind["structType"]["fields"]
            return {
                one["name"]: _named(item, one["type"])
                for one, item in zip(fields, data, strict=True)
            }
        case "INT64":
            return int(data)
        case "JSON":
            return json.loads(data)
        case _:
            return data


def _data_record(record: dict[str, Any], token: str) -> DataRecord:
    return DataRecord(
        token=token,
        commit_timestamp=_z(record["commit_timestamp"]),
        sequence=record["record_sequence"],
        transaction=record["server_transaction_id"],
        is_last=record["is_last_record_in_transaction_in_partition"],
        table=record["table_name"],
        columns=tuple(
            ColumnType(one["name"], one["type"], one["is_primary_key"], one["ordinal_position"])
            for one in record["column_types"]
        ),
        mods=tuple(_mod(one) for one in record["mods"]),
        mod_type=record["mod_type"],
        capture_type=record["value_capture_type"],
        record_count=record["number_of_records_in_transaction"],
        partition_count=record["number_of_partitions_in_transaction"],
        tag=record["transaction_tag"],
        is_system=record["is_system_transaction"],
    )


def _mod(data: dict[str, Any]) -> Mod:
    names = ("keys", "new_values", "old_values")
    nulls = tuple(name for name in names if data[name] is None)
    return Mod(*(data[name] or {} for name in names), nulls)


def _z(text: str) -> str:
    """RFC 3339 with Z and microseconds, from either dialect."""
    text = text.replace("+00:00", "Z")
    whole, _, fraction = text.removesuffix("Z").partition(".")
    return f"{whole}.{fraction.ljust(6, '0')}Z"
