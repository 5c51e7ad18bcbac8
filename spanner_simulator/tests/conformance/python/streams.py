"""Change streams of a GoogleSQL database."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from typing import Any

from google.api_core import exceptions
from google.cloud.spanner_v1 import KeySet, TypeCode, param_types
from harness import Databases, control, equal, fails_with

QUERY = (
    "SELECT ChangeRecord FROM READ_Changes(start_timestamp => @start, end_timestamp => @end, "
    "partition_token => @token, heartbeat_milliseconds => @heartbeat)"
)
TYPES = {
    "start": param_types.TIMESTAMP,
    "end": param_types.TIMESTAMP,
    "token": param_types.STRING,
    "heartbeat": param_types.INT64,
}
COLUMNS = ["Id", "Balance", "Owner"]

# (token or None, start, end or None) to the records, each a dict with one kind of record in it.
Query = Callable[[str | None, Any, Any], Iterator[dict[str, Any]]]


def changes(database: Any) -> Query:
    """How to query the stream of this database."""

    def query(token: str | None, start: Any, end: Any) -> Iterator[dict[str, Any]]:
        bound = {"start": start, "end": end, "token": token, "heartbeat": 1000}
        with database.snapshot() as snapshot:
            rows = snapshot.execute_sql(QUERY, params=bound, param_types=TYPES, timeout=120)
            for (row,) in rows:
                yield from _named(rows.fields[0].type_, row)

    return query


def _named(kind: Any, value: Any) -> Any:
    """The fields of structs by name, at all depths."""
    if value is None:
        return None
    if kind.code == TypeCode.ARRAY:
        return [_named(kind.array_element_type, one) for one in value]
    if kind.code == TypeCode.STRUCT:
        fields = kind.struct_type.fields
        return {one.name: _named(one.type_, part) for one, part in zip(fields, value, strict=True)}
    return value


def follow(query: Query, start: Any, end: Any) -> tuple[list[dict[str, Any]], int, list[Any]]:
    """Data records from `start` to `end`, children after parents; number of tokens; heartbeats."""
    found: list[dict[str, Any]] = []
    beats: list[Any] = []
    waiting: dict[str, tuple[Any, set[str]]] = {}
    for change in query(None, start, None):
        for record in change["child_partitions_record"]:
            for child in record["child_partitions"]:
                waiting[child["token"]] = (start, set())
    done: set[str] = set()
    while waiting:
        token = next(one for one, (_, parents) in waiting.items() if parents <= done)
        since, _ = waiting[token]
        for change in query(token, since, end):
            found += change.get("data_change_record") or []
            beats += [record["timestamp"] for record in change.get("heartbeat_record") or []]
            for record in change.get("child_partitions_record") or []:
                for child in record["child_partitions"]:
                    if child["token"] not in done and record["start_timestamp"] <= end:
                        parents = set(child["parent_partition_tokens"])
                        waiting[child["token"]] = (record["start_timestamp"], parents)
        del waiting[token]
        done.add(token)
    return found, len(done), beats


def _token(change: dict[str, Any]) -> str:
    """The token in a row of the initial query."""
    return change["child_partitions_record"][0]["child_partitions"][0]["token"]


def _put(databases: Databases, verb: str, *rows: list[Any]) -> Any:
    with databases.google.batch() as batch:
        getattr(batch, verb)("Accounts", COLUMNS[: len(rows[0])], rows)
    return batch.committed


def stream_initial(databases: Databases) -> None:
    start = _put(databases, "insert", [1, 100, "initial"])
    records = list(changes(databases.google)(None, start, None))
    tokens = set()
    for number, one in enumerate(records):
        equal(([], []), (one["data_change_record"], one["heartbeat_record"]))
        (record,) = one["child_partitions_record"]
        equal((start, f"{number:08d}"), (record["start_timestamp"], record["record_sequence"]))
        (child,) = record["child_partitions"]
        equal([], child["parent_partition_tokens"])
        tokens.add(child["token"])
    equal(True, 1 <= len(tokens) == len(records))


def stream_data(databases: Databases) -> None:
    start = _put(databases, "insert", [10, 1, "a"], [11, None, None])
    _put(databases, "update", [10, 2])
    with databases.google.batch() as batch:
        batch.delete("Accounts", KeySet(keys=[[11]]))
    found, _, _ = follow(changes(databases.google), start, batch.committed)
    found.sort(key=lambda one: (one["commit_timestamp"], one["record_sequence"]))
    mods = [(one["mod_type"], mod) for one in found for mod in one["mods"]]
    new = {"Balance": "1", "Owner": "a"}
    null = {"Balance": None, "Owner": None}
    expected = [
        ("INSERT", {"keys": {"Id": "10"}, "new_values": new, "old_values": {}}),
        ("INSERT", {"keys": {"Id": "11"}, "new_values": null, "old_values": {}}),
        (
            "UPDATE",
            {"keys": {"Id": "10"}, "new_values": {"Balance": "2"}, "old_values": {"Balance": "1"}},
        ),
        ("DELETE", {"keys": {"Id": "11"}, "new_values": {}, "old_values": null}),
    ]
    equal(expected, [(kind, {part: dict(mod[part]) for part in mod}) for kind, mod in mods])
    equal("OLD_AND_NEW_VALUES", found[0]["value_capture_type"])
    equal("Accounts", found[0]["table_name"])
    columns = [
        (one["name"], dict(one["type"]), one["is_primary_key"], one["ordinal_position"])
        for one in found[0]["column_types"]
    ]
    equal(
        [
            ("Id", {"code": "INT64"}, True, 1),
            ("Balance", {"code": "INT64"}, False, 2),
            ("Owner", {"code": "STRING"}, False, 3),
        ],
        columns,
    )
    equal((start, batch.committed), (found[0]["commit_timestamp"], found[-1]["commit_timestamp"]))


def stream_heartbeats(databases: Databases) -> str:
    start = _put(databases, "insert", [20, 1, "a"])
    query = changes(databases.google)
    end = start + dt.timedelta(seconds=3.5)
    _, _, beats = follow(query, start, end)
    equal([], [beat for beat in beats if not start <= beat <= end])
    equal(True, len(beats) >= 2)
    return f"{len(beats)} heartbeats"


def stream_split(databases: Databases) -> str:
    start = _put(databases, "insert", *([1000 + n, 0, "split"] for n in range(20)))
    for number in (1, 2):
        control("split", database=databases.google.database_id, stream="Changes")
        last = _put(databases, "update", *([1000 + n, number] for n in range(20)))
    found, tokens, _ = follow(changes(databases.google), start, last)
    seen: dict[str, list[str]] = {}
    for record in found:
        for mod in record["mods"]:
            seen.setdefault(mod["keys"]["Id"], []).append(mod["new_values"]["Balance"])
    equal({str(1000 + n): ["0", "1", "2"] for n in range(20)}, seen)
    equal(True, tokens >= 3)
    return f"{tokens} stream partitions"


def stream_resume(databases: Databases) -> str:
    name = databases.google.database_id
    start = _put(databases, "insert", [30, 0, "resume"])
    query = changes(databases.google)
    tokens = [_token(one) for one in query(None, start, None)]
    (token,) = (
        one
        for one in tokens
        if any(change["data_change_record"] for change in query(one, start, start))
    )
    seen: list[str] = []
    interrupted = 0
    stream = query(token, start, None)
    for change in stream:
        for record in change["data_change_record"]:
            seen += [mod["new_values"]["Balance"] for mod in record["mods"]]
        if change["data_change_record"]:
            if len(seen) == 20:
                break
            answer = control("interrupt", database=name, stream="Changes", token=token)
            interrupted += answer["interrupted"]
            _put(databases, "update", [30, len(seen)])
    stream.close()
    equal([str(number) for number in range(20)], seen)
    equal(True, interrupted > 0)
    return f"{interrupted} interruptions"


def stream_tag(databases: Databases) -> None:
    def work(transaction: Any) -> None:
        transaction.insert("Accounts", COLUMNS, [[40, 1, "tagged"]])

    start = _put(databases, "insert", [39, 1, "before"])
    databases.google.run_in_transaction(work, transaction_tag="conformance")
    last = _put(databases, "insert", [41, 1, "untagged"])
    found, _, _ = follow(changes(databases.google), start, last)
    tags = {record["mods"][0]["keys"]["Id"]: record["transaction_tag"] for record in found}
    equal(("conformance", ""), (tags["40"], tags["41"]))


def stream_errors(databases: Databases) -> None:
    start = _put(databases, "insert", [50, 1, "errors"])
    query = changes(databases.google)
    past = "2020-01-01T00:00:00Z"
    fails_with(exceptions.OutOfRange, lambda: list(query(None, past, None)))
    fails_with(exceptions.InvalidArgument, lambda: list(query("nonsense", start, None)))
    fails_with(exceptions.InvalidArgument, lambda: list(query(None, None, None)))


CHECKS = [
    *(stream_initial, stream_data, stream_heartbeats, stream_split, stream_resume, stream_tag),
    stream_errors,
]
