"""A database of the PostgreSQL dialect, and the end of both databases."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from google.api_core.datetime_helpers import DatetimeWithNanoseconds
from google.cloud.spanner_admin_database_v1 import types as admin
from google.cloud.spanner_v1 import JsonObject, KeySet, param_types
from harness import Databases, equal, statements
from streams import Query, follow

SCALARS = ["bool", "int", "float4", "float8", "num", "str", "byt", "dat", "tim", "jso"]
ROW = [
    *(True, -42, 0.5, 0.1, Decimal("-12.3450"), "grüße 🌍", b"aGVsbG8AAQ==", dt.date(2024, 2, 29)),
    DatetimeWithNanoseconds.from_rfc3339("2024-02-29T12:34:56.123456Z"),
    JsonObject({"a": [1, None, "x"], "b": {}}),
]
TYPES = (param_types.TIMESTAMP, param_types.TIMESTAMP, param_types.STRING, param_types.INT64)


def pg_database_created(databases: Databases) -> None:
    databases.postgres = databases.instance.database(
        "python-postgres", database_dialect=admin.DatabaseDialect.POSTGRESQL
    )
    databases.postgres.create().result(30)
    databases.postgres.update_ddl(statements("postgres.sql")).result(30)
    databases.postgres.reload()
    equal(admin.DatabaseDialect.POSTGRESQL, databases.postgres.database_dialect)
    found = "\n".join(databases.postgres.ddl_statements).lower()
    for part in ("create change stream changes", "timestamp with time zone", "include (born)"):
        equal((part, True), (part, part in found))


def _query(databases: Databases, sql: str, *params: tuple[Any, Any]) -> list[Any]:
    with databases.postgres.snapshot() as snapshot:
        rows = snapshot.execute_sql(
            sql,
            params={f"p{number}": value for number, (value, _) in enumerate(params, 1)},
            param_types={f"p{number}": kind for number, (_, kind) in enumerate(params, 1)},
        )
        return list(rows)


def pg_types(databases: Databases) -> None:
    columns = ["id", *SCALARS]
    nothing: list[Any] = [None] * len(SCALARS)
    with databases.postgres.batch() as batch:
        batch.insert("scalars", columns, [[1, *ROW], [2, *nothing]])
        batch.insert("scalars", ["id", "num", "float8"], [[3, "NaN", float("inf")]])
    with databases.postgres.snapshot() as snapshot:
        rows = list(snapshot.read("scalars", columns, KeySet(keys=[[1], [2]])))
    equal([[1, *ROW], [2, *nothing]], rows)
    equal("-12.3450", str(rows[0][5]))
    ((number, real),) = _query(databases, "SELECT num, float8 FROM scalars WHERE id = 3")
    equal((True, float("inf")), (number.is_nan(), real))


def pg_query(databases: Databases) -> None:
    with databases.postgres.batch() as batch:
        batch.insert("singers", ["singerid", "name"], [[1, "first"], [2, "second"], [3, "third"]])
        batch.insert("albums", ["singerid", "albumid", "price"], [[1, 1, 10], [1, 2, 20]])
    rows = _query(
        databases,
        "SELECT s.name, count(a.albumid) AS n, sum(a.price) FROM singers s "
        "LEFT JOIN albums a ON a.singerid = s.singerid WHERE s.name >= $1 AND s.singerid = ANY($2) "
        "GROUP BY s.name ORDER BY s.name LIMIT $3",
        ("a", param_types.STRING),
        ([1, 2], param_types.Array(param_types.INT64)),
        (5, param_types.INT64),
    )
    equal([["first", 2, Decimal(30)], ["second", 0, None]], rows)
    with databases.postgres.snapshot() as snapshot:
        keys = KeySet(keys=[["third"]])
        rows = list(snapshot.read("singers", ["name", "singerid"], keys, index="singersbyname"))
    equal([["third", 3]], rows)


def _changes(database: Any) -> Query:
    def query(token: str | None, start: Any, end: Any) -> Iterator[dict[str, Any]]:
        values = (start, end, token, 1000)
        with database.snapshot() as snapshot:
            rows = snapshot.execute_sql(
                "SELECT * FROM spanner.read_json_changes($1, $2, $3, $4, null)",
                params={f"p{number}": value for number, value in enumerate(values, 1)},
                param_types={f"p{number}": kind for number, kind in enumerate(TYPES, 1)},
                timeout=120,
            )
            for (row,) in rows:
                (kind,) = row
                record = dict(row[kind])
                for name in ("start_timestamp", "commit_timestamp"):
                    if name in record:
                        record[name] = dt.datetime.fromisoformat(record[name])
                yield {kind: [record]}

    return query


def pg_stream(databases: Databases) -> None:
    columns = ["id", "balance", "owner"]
    with databases.postgres.batch() as first:
        first.insert("accounts", columns, [[1, 7, "a"]])
    with databases.postgres.batch() as last:
        last.delete("accounts", KeySet(keys=[[1]]))
    found, _, _ = follow(_changes(databases.postgres), first.committed, last.committed)
    equal(["INSERT", "DELETE"], [one["mod_type"] for one in found])
    values = {"balance": "7", "owner": "a"}
    equal([{"keys": {"id": "1"}, "new_values": values, "old_values": {}}], found[0]["mods"])
    equal([{"keys": {"id": "1"}, "new_values": {}, "old_values": values}], found[1]["mods"])
    equal(
        (1, 1),
        (
            found[0]["number_of_records_in_transaction"],
            found[0]["column_types"][0]["ordinal_position"],
        ),
    )


def database_dropped(databases: Databases) -> None:
    for database in (databases.google, databases.postgres):
        database.drop()
        equal(False, database.exists())
    databases.instance.delete()
    equal(False, databases.instance.exists())


CHECKS = [pg_database_created, pg_types, pg_query, pg_stream, database_dropped]
