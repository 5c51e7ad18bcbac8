"""A small bank in Spanner, as Python programs use it: accounts, transfers, a change stream."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from google.cloud import spanner
from google.cloud.spanner_v1 import param_types

ACCOUNTS = 20
TABLES = [
    "CREATE TABLE Accounts (Id INT64 NOT NULL, Balance INT64 NOT NULL) PRIMARY KEY (Id)",
    (
        "CREATE TABLE Ledger (Id STRING(36) NOT NULL, Amount INT64, "
        "WrittenAt TIMESTAMP OPTIONS (allow_commit_timestamp = true)) PRIMARY KEY (Id)"
    ),
    "CREATE CHANGE STREAM Bank FOR Accounts, Ledger",
    "CREATE ROLE stranger",
]
QUERY = "SELECT ChangeRecord FROM READ_Bank(@start, @end, @token, @heartbeat)"
TYPES = {
    "start": param_types.TIMESTAMP,
    "end": param_types.TIMESTAMP,
    "token": param_types.STRING,
    "heartbeat": param_types.INT64,
}


def account(number: int) -> int:
    return (number - ACCOUNTS // 2) * 10**17


def transfer(transaction: Any, name: str, source: int, target: int) -> None:
    """One debit, one credit and one ledger row."""
    for key, amount in ((source, -1), (target, 1)):
        keys = spanner.KeySet(keys=[[key]])
        ((balance,),) = transaction.read("Accounts", ["Balance"], keys)
        transaction.update("Accounts", ["Id", "Balance"], [[key, balance + amount]])
    columns = ["Id", "Amount", "WrittenAt"]
    transaction.insert("Ledger", columns, [[name, 1, spanner.COMMIT_TIMESTAMP]])


def transfers(bank: Any, threads: int, each: int) -> None:
    """Concurrent transfers, many between the same few accounts."""

    def work(worker: int) -> None:
        for number in range(each):
            source = account((worker + number) % 5)
            target = account(ACCOUNTS - 1 - number % 5)
            bank.run_in_transaction(transfer, f"{worker}-{number}", source, target)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))


def changes(bank: Any, token: str | None, start: Any, end: Any, heartbeat: int = 1000) -> Any:
    """The decoded rows of one change stream query."""
    bound = {"start": start, "end": end, "token": token, "heartbeat": heartbeat}
    with bank.snapshot() as snapshot:
        for row in snapshot.execute_sql(QUERY, params=bound, param_types=TYPES):
            yield row[0][0]


def tokens_of(row: Any) -> list[str]:
    return [child[0] for record in row[2] for child in record[2]]


def read_all(bank: Any, end: Any) -> list[tuple[Any, ...]]:
    """Follow the lineage from the initial query to `end`: a child only after all its parents."""
    found: list[tuple[Any, ...]] = []
    waiting: dict[str, tuple[Any, set[str]]] = {}
    for row in changes(bank, None, bank.opened_at, None):
        waiting[tokens_of(row)[0]] = (bank.opened_at, set())
    done: set[str] = set()
    while waiting:
        token = next(one for one, (_, parents) in waiting.items() if parents <= done)
        start, _ = waiting.pop(token)
        for row in changes(bank, token, start, end):
            for record in row[0]:
                for number, mod in enumerate(record[6]):
                    found.append((record[0], record[2], record[1], number, record[4], mod, record))
            for record in row[2]:
                for child, parents in record[2]:
                    if record[0] <= end:
                        waiting[child] = (record[0], set(parents))
        done.add(token)
    return found
