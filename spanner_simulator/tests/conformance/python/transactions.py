"""Queries, DML, read-write transactions, snapshots and partitioned reads."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from google.api_core import exceptions
from google.cloud.spanner_v1 import KeyRange, KeySet, param_types
from harness import Databases, equal, fails_with


def _query(
    database: Any, sql: str, params: dict[str, Any] | None = None, **types: Any
) -> list[Any]:
    with database.snapshot() as snapshot:
        return list(snapshot.execute_sql(sql, params=params, param_types=types or None))


def _put(databases: Databases, *rows: tuple[str, int]) -> Any:
    with databases.google.batch() as batch:
        batch.insert_or_update("Counters", ["Name", "Value"], rows)
    return batch.committed


def _value(databases: Databases, name: str, **bound: Any) -> int | None:
    with databases.google.snapshot(**bound) as snapshot:
        rows = list(snapshot.read("Counters", ["Value"], KeySet(keys=[[name]])))
    return rows[0][0] if rows else None


def _albums(databases: Databases, singer: int) -> None:
    with databases.google.batch() as batch:
        batch.insert_or_update(
            "Singers", ["SingerId", "Name"], [[singer, "first"], [singer + 1, "second"]]
        )
        batch.insert_or_update(
            "Albums",
            ["SingerId", "AlbumId", "Title", "Price"],
            [[singer, 1, "a", 10], [singer, 2, "b", 20], [singer + 1, 1, "c", None]],
        )


def query_parameters(databases: Databases) -> None:
    _albums(databases, 600)
    rows = _query(
        databases.google,
        "SELECT Title, Price + @more AS Dearer FROM Albums "
        "WHERE SingerId = @SINGER AND Title >= @title ORDER BY Title DESC LIMIT @most OFFSET 0",
        {"singer": 600, "title": "a", "most": 5, "more": 1, "unused": None},
        singer=param_types.INT64,
        title=param_types.STRING,
        most=param_types.INT64,
        more=param_types.INT64,
        unused=param_types.STRING,
    )
    equal([["b", 21], ["a", 11]], rows)


def dml_inline_begin(databases: Databases) -> None:
    def work(transaction: Any) -> tuple[int, int, int]:
        inserted = transaction.execute_update(
            "INSERT INTO Counters (Name, Value) VALUES ('dml a', 1), ('dml b', @two)",
            params={"two": 2},
            param_types={"two": param_types.INT64},
        )
        updated = transaction.execute_update(
            "UPDATE Counters SET Value = Value + 10 WHERE STARTS_WITH(Name, 'dml ')"
        )
        deleted = transaction.execute_update("DELETE FROM Counters WHERE Name = 'dml a'")
        return inserted, updated, deleted

    equal((2, 2, 1), databases.google.run_in_transaction(work))
    equal(12, _value(databases, "dml b"))


def dml_returning(databases: Databases) -> None:
    def work(transaction: Any) -> list[Any]:
        insert = transaction.execute_sql(
            "INSERT INTO Counters (Name, Value) VALUES ('returned', 5) THEN RETURN Name, Value * 2"
        )
        rows = list(insert)
        equal(1, insert.stats.row_count_exact)
        update = "UPDATE Counters SET Value = 6 WHERE Name = 'returned' THEN RETURN Value"
        rows += transaction.execute_sql(update)
        rows += transaction.execute_sql(
            "DELETE FROM Counters WHERE Name = 'returned' THEN RETURN *"
        )
        return rows

    rows = databases.google.run_in_transaction(work)
    equal([["returned", 10], [6], ["returned", 6]], [row[:2] for row in rows])


def dml_partitioned(databases: Databases) -> None:
    _put(databases, *((f"many {number:03d}", 1) for number in range(50)))
    count = databases.google.execute_partitioned_dml(
        "UPDATE Counters SET Value = @value WHERE STARTS_WITH(Name, 'many ')",
        params={"value": 3},
        param_types={"value": param_types.INT64},
    )
    sql = "SELECT SUM(Value) FROM Counters WHERE STARTS_WITH(Name, 'many ')"
    equal((50, [[150]]), (count, _query(databases.google, sql)))


def dml_seen_in_transaction(databases: Databases) -> None:
    _put(databases, ("seen", 1))

    def work(transaction: Any) -> list[Any]:
        transaction.execute_update("UPDATE Counters SET Value = 2 WHERE Name = 'seen'")
        rows = list(transaction.read("Counters", ["Value"], KeySet(keys=[["seen"]])))
        rows += transaction.execute_sql("SELECT Value FROM Counters WHERE Name = 'seen'")
        equal(1, _value(databases, "seen"))
        # Mutations wait for the commit, and are applied after the statements.
        transaction.update("Counters", ["Name", "Value"], [["seen", 3]])
        rows += transaction.execute_sql("SELECT Value FROM Counters WHERE Name = 'seen'")
        return rows

    equal([[2], [2], [2]], databases.google.run_in_transaction(work))
    equal(3, _value(databases, "seen"))


def transaction_retried(databases: Databases) -> str:
    _put(databases, ("contended", 0))
    meeting = threading.Barrier(2)
    attempts: list[int] = []

    def add_one(transaction: Any, worker: int) -> None:
        attempts.append(worker)
        keys = KeySet(keys=[["contended"]])
        ((value,),) = transaction.read("Counters", ["Value"], keys)
        if attempts.count(worker) == 1:
            # Both have read before either writes; a server that locks lets only one come here.
            with contextlib.suppress(threading.BrokenBarrierError):
                meeting.wait(2)
        transaction.update("Counters", ["Name", "Value"], [["contended", value + 1]])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda one: databases.google.run_in_transaction(add_one, one), (1, 2)))
    equal(2, _value(databases, "contended"))
    return f"{len(attempts)} attempts"


def transaction_rolled_back(databases: Databases) -> None:
    class Second(Exception):
        pass

    def work(transaction: Any) -> None:
        transaction.execute_update("INSERT INTO Counters (Name, Value) VALUES ('undone', 1)")
        raise Second

    fails_with(Second, lambda: databases.google.run_in_transaction(work))
    equal(None, _value(databases, "undone"))


def snapshot_strong(databases: Databases) -> None:
    _put(databases, ("strong", 1))
    keys = KeySet(keys=[["strong"]])
    with databases.google.snapshot(multi_use=True) as snapshot:
        before = list(snapshot.read("Counters", ["Value"], keys))
        _put(databases, ("strong", 2))
        after = list(snapshot.execute_sql("SELECT Value FROM Counters WHERE Name = 'strong'"))
    equal(([[1]], [[1]], 2), (before, after, _value(databases, "strong")))


def snapshot_read_timestamp(databases: Databases) -> None:
    first = _put(databases, ("at", 1))
    second = _put(databases, ("at", 2))
    equal(1, _value(databases, "at", read_timestamp=first))
    equal(2, _value(databases, "at", read_timestamp=second))
    with databases.google.snapshot(read_timestamp=first, multi_use=True) as snapshot:
        snapshot.begin()
        sql = "SELECT Value FROM Counters WHERE Name = 'at'"
        equal([[1]], list(snapshot.execute_sql(sql)))


def partition_read(databases: Databases) -> None:
    names = [f"part {number:02d}" for number in range(20)]
    _put(databases, *((name, 1) for name in names))
    snapshot = databases.google.batch_snapshot()
    keys = KeySet(ranges=[KeyRange(start_closed=["part "], end_open=["part~"])])
    batches = list(snapshot.generate_read_batches("Counters", ["Name"], keys))
    _put(databases, ("part 99", 1))
    rows = [row[0] for batch in batches for row in snapshot.process(batch)]
    equal(names, sorted(rows))


def partition_query(databases: Databases) -> None:
    names = [f"slice {number:02d}" for number in range(20)]
    _put(databases, *((name, 1) for name in names))
    snapshot = databases.google.batch_snapshot()
    batches = list(
        snapshot.generate_query_batches(
            "SELECT Name FROM Counters WHERE STARTS_WITH(Name, @start)",
            params={"start": "slice "},
            param_types={"start": param_types.STRING},
        )
    )
    _put(databases, ("slice 99", 1))
    rows = [row[0] for batch in batches for row in snapshot.process(batch)]
    equal(names, sorted(rows))
    fails_with(
        exceptions.InvalidArgument,
        lambda: list(snapshot.generate_query_batches("SELECT COUNT(*) FROM Counters ORDER BY 1")),
    )


CHECKS = [
    *(query_parameters, dml_inline_begin, dml_returning, dml_partitioned),
    *(dml_seen_in_transaction, transaction_retried, transaction_rolled_back, snapshot_strong),
    *(snapshot_read_timestamp, partition_read, partition_query),
]
