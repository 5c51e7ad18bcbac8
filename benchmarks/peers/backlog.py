"""The backlog that every peer reads: one table, one change stream, updates of rows that exist.

A transaction updates 100 rows, 25 in each of the four stream partitions. Of those 25, one after the
other has other columns, so Spanner cannot put two into one data change record: each has one mod.
"""

from __future__ import annotations

import datetime
import decimal
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tidegate.local_stack.demo.bank_database import commit_time_us, create_database
from tidegate.local_stack.parts.programs import DatabaseName
from tidegate.schemas.instants import NS_PER_US, format_rfc3339

TABLE = "Accounts"
STREAM = "Everything"
STREAM_PARTITIONS = 4
ROWS_AT_ONCE = 100

_SCHEMA = (
    f"""CREATE TABLE {TABLE} (
        Id INT64 NOT NULL, Owner STRING(64), Balance NUMERIC, Branch STRING(16), Opened DATE,
        Active BOOL, Score INT64, Updated TIMESTAMP
    ) PRIMARY KEY (Id)""",
    f"""CREATE CHANGE STREAM {STREAM} FOR {TABLE}
        OPTIONS (value_capture_type = 'OLD_AND_NEW_VALUES')""",
)
_COLUMNS = ("Id", "Owner", "Balance", "Branch", "Opened", "Active", "Score", "Updated")
_UPDATED = (("Id", "Balance", "Score", "Updated"), ("Id", "Balance", "Branch", "Updated"))
_TRANSACTIONS_OF_ROWS = 40
"""So many transactions insert the rows; the updates then go round them."""
_WRITERS = 4
_QUARTER = 1 << 62
"""The keys of one of four stream partitions: a new change stream shares all of INT64 evenly."""
EPOCH = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def write_backlog(name: DatabaseName, *, changes: int) -> str:
    """Create the database, write that many updates; return the time before the first (RFC 3339).

    `changes` is a multiple of ROWS_AT_ONCE. Takes about a minute for 300,000.
    """
    database, _, last_us = create_accounts(name)
    with ThreadPoolExecutor(_WRITERS) as writers:
        updates = range(changes // ROWS_AT_ONCE)
        for _ in writers.map(lambda n: update(database, n), updates):
            pass
    return format_rfc3339((last_us + 1) * NS_PER_US)


def create_accounts(name: DatabaseName) -> tuple[Any, int, int]:
    """Create the database and its rows; return it, a time before its first row, and its last."""
    database = create_database(name, _SCHEMA)
    before_us = time.time_ns() // NS_PER_US
    with ThreadPoolExecutor(_WRITERS) as writers:
        inserted = writers.map(lambda n: _insert(database, n), range(_TRANSACTIONS_OF_ROWS))
        return database, before_us, max(inserted)


def key(transaction: int, number: int) -> int:
    """Return the key of a transaction's row: in one stream partition after the other."""
    stream_partition = number % STREAM_PARTITIONS
    row = transaction % _TRANSACTIONS_OF_ROWS * ROWS_AT_ONCE + number
    return (stream_partition - STREAM_PARTITIONS // 2) * _QUARTER + row


def _insert(database: Any, transaction: int) -> int:
    """Insert the rows; return the commit time in microseconds since 1970."""
    rows = [
        (key(transaction, number), f"owner-{number:012d}", decimal.Decimal(number), "north",
         EPOCH.date(), True, number, EPOCH)
        for number in range(ROWS_AT_ONCE)
    ]  # fmt: skip
    with database.batch() as batch:
        batch.insert(TABLE, columns=_COLUMNS, values=rows)
    return commit_time_us(batch.committed)


def update(database: Any, transaction: int) -> int:
    """Commit a transaction, whose number is in its rows; return its commit time (microseconds)."""
    at = EPOCH + datetime.timedelta(milliseconds=transaction)
    with database.batch() as batch:
        for number in range(ROWS_AT_ONCE):
            kind = number // STREAM_PARTITIONS % 2
            third = f"branch-{transaction % 7}" if kind else transaction
            balance = decimal.Decimal(transaction * ROWS_AT_ONCE + number) / 100
            values = (key(transaction, number), balance, third, at)
            batch.update(TABLE, columns=_UPDATED[kind], values=[values])
    return commit_time_us(batch.committed)
