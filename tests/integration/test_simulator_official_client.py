"""The official Python client, unchanged, against the simulator: the way every user meets it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from google.api_core.exceptions import InvalidArgument, OutOfRange, PermissionDenied
from google.cloud import spanner
from google.cloud.spanner_v1 import param_types

from tidegate.spanner_simulator import Simulator, SimulatorConfig
from tidegate.spanner_simulator.core.timestamps import format_us

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


@pytest.fixture
def simulator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Simulator]:
    config = SimulatorConfig(stream_partitions=4, seed=11, equal_timestamps=0.5)
    with Simulator(config) as running:
        monkeypatch.setenv("SPANNER_EMULATOR_HOST", running.grpc_address)
        monkeypatch.setenv("SPANNER_DISABLE_BUILTIN_METRICS", "true")
        yield running


@pytest.fixture
def connect(simulator: Simulator) -> Callable[..., Any]:
    """Databases of one client; the first call makes the instance and the bank."""
    instance = spanner.Client(project="p").instance("inst", "projects/p/instanceConfigs/c")
    instance.create().result(30)
    instance.database("bank", ddl_statements=TABLES).create().result(30)

    def database(**options: Any) -> Any:
        return instance.database("bank", **options)

    return database


@pytest.fixture
def bank(connect: Callable[..., Any]) -> Any:
    database = connect()
    # Keys on both sides of 0 lie in different stream partitions.
    with database.batch() as batch:
        batch.insert("Accounts", ["Id", "Balance"], [[account(n), 100] for n in range(ACCOUNTS)])
    database.opened_at = batch.committed
    return database


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


def test_money_is_moved_by_concurrent_transactions_and_none_is_lost(bank: Any) -> None:
    transfers(bank, threads=4, each=15)
    with bank.snapshot() as snapshot:
        ((total,),) = snapshot.execute_sql("SELECT SUM(Balance) FROM Accounts")
    with bank.snapshot() as snapshot:
        ((entries,),) = snapshot.execute_sql("SELECT COUNT(*) FROM Ledger")

    assert (total, entries) == (100 * ACCOUNTS, 60)


def test_a_conflict_aborts_and_the_client_retries(bank: Any) -> None:
    meeting = threading.Barrier(2, timeout=60)
    attempts: list[int] = []

    def add_one(transaction: Any, worker: int) -> None:
        attempts.append(worker)
        keys = spanner.KeySet(keys=[[account(0)]])
        ((balance,),) = transaction.read("Accounts", ["Balance"], keys)
        if attempts.count(worker) == 1:
            meeting.wait()
        transaction.update("Accounts", ["Id", "Balance"], [[account(0), balance + 1]])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda one: bank.run_in_transaction(add_one, one), (1, 2)))
    with bank.snapshot() as snapshot:
        ((balance,),) = snapshot.read("Accounts", ["Balance"], spanner.KeySet(keys=[[account(0)]]))

    assert balance == 102
    assert len(attempts) == 3


def test_a_snapshot_at_an_exact_timestamp_sees_exactly_that(bank: Any) -> None:
    keys = spanner.KeySet(all_=True)
    with bank.batch() as batch:
        batch.update("Accounts", ["Id", "Balance"], [[account(0), 7]])
    for timestamp, balance in ((bank.opened_at, 100), (batch.committed, 7)):
        with bank.snapshot(read_timestamp=timestamp) as snapshot:
            rows = dict(snapshot.read("Accounts", ["Id", "Balance"], keys))
        assert rows[account(0)] == balance
        assert len(rows) == ACCOUNTS


def test_a_read_only_transaction_keeps_one_time(bank: Any) -> None:
    keys = spanner.KeySet(all_=True)
    with bank.snapshot(multi_use=True) as snapshot:
        before = list(snapshot.read("Accounts", ["Id", "Balance"], keys))
        transfers(bank, threads=1, each=2)
        after = list(snapshot.read("Accounts", ["Id", "Balance"], keys))

    assert before == after


def test_every_change_once_and_in_order_through_splits_and_merges(
    bank: Any, simulator: Simulator
) -> None:
    stop = threading.Event()

    def churn() -> None:
        while not stop.wait(0.01):
            simulator.split("bank", "Bank")
            simulator.merge("bank", "Bank")

    churning = threading.Thread(target=churn)
    churning.start()
    try:
        transfers(bank, threads=3, each=15)
    finally:
        stop.set()
        churning.join()
    with bank.batch() as batch:
        batch.insert("Ledger", ["Id", "Amount"], [["last", 0]])
    found = read_all(bank, batch.committed)
    log = simulator.commit_log("bank", "Bank")
    expected = [
        (one["server_transaction_id"], change["record_sequence"], change["mod_number"])
        for one in log
        for change in one["changes"]
    ]

    assert sorted(one[1:4] for one in found) == sorted(expected)
    by_place = {one[1:4]: one for one in found}
    for one in log:
        for change in one["changes"]:
            place = (one["server_transaction_id"], change["record_sequence"], change["mod_number"])
            _, _, _, _, table, (keys, new_values, old_values), record = by_place[place]
            assert (table, dict(keys)) == (change["table"], change["keys"])
            assert dict(new_values) == change["new_values"]
            assert dict(old_values) == change["old_values"]
            assert record[10] == len(one["stream_partition_tokens"])
    for key in {(one[4], str(one[5][0])) for one in found}:
        places = [one[:4] for one in found if (one[4], str(one[5][0])) == key]
        assert places == sorted(places)
    parents = {len(one["parents"]) for one in simulator.stream_partitions("bank", "Bank")}
    assert parents & {1, 2}


def test_an_interrupted_query_goes_on_from_its_resume_token(
    bank: Any, simulator: Simulator
) -> None:
    token = simulator.stream_partitions("bank", "Bank")[-1]["token"]
    names = [f"{number:04d}" for number in range(30)]
    seen: list[str] = []

    def write(name: str) -> None:
        with bank.batch() as batch:
            batch.insert("Ledger", ["Id", "Amount"], [[f"f{name}", 1]])

    write(names[0])
    stream = changes(bank, token, bank.opened_at, None, heartbeat=100)
    interrupted = 0
    for row in stream:
        for record in row[0]:
            seen.extend(mod[0]["Id"] for mod in record[6])
        if len(seen) == len(names):
            break
        if row[0]:
            # The client re-sends the statement with the last token and hears nothing twice.
            interrupted += simulator.interrupt("bank", "Bank", token=token)["interrupted"]
            write(names[len(seen)])
    stream.close()

    assert seen == [f"f{name}" for name in names]
    assert interrupted >= 10


def test_heartbeats_come_while_nothing_happens(bank: Any, simulator: Simulator) -> None:
    token = simulator.stream_partitions("bank", "Bank")[0]["token"]
    stream = changes(bank, token, bank.opened_at, None, heartbeat=100)
    beats: list[Any] = []
    for row in stream:
        beats.extend(record[0] for record in row[1])
        if len(beats) == 3:
            break
    stream.close()

    assert beats == sorted(set(beats))


def test_ninety_waiting_queries_on_one_channel_all_hear_of_a_commit(
    bank: Any, simulator: Simulator
) -> None:
    for key in ("a1", "b1", "c1", "d1"):
        simulator.split("bank", "Bank", table="Ledger", key=[key])
    last_five = simulator.stream_partitions("bank", "Bank")[-5:]
    seen = threading.Semaphore(0)

    def read(number: int) -> None:
        one = last_five[number % 5]
        start = format_us(max(one["start_timestamp_us"], last_five[0]["start_timestamp_us"]))
        for row in changes(bank, one["token"], start, None, heartbeat=1000):
            if row[0]:
                seen.release()
            if row[2]:
                break

    with ThreadPoolExecutor(90) as pool:
        reading = [pool.submit(read, number) for number in range(90)]
        deadline = time.monotonic() + 120
        while [one["readers"] for one in simulator.stream_partitions("bank", "Bank")[-5:]] != (
            [18] * 5
        ):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        with bank.batch() as batch:
            rows = [[key, 1] for key in ("9", "a2", "b2", "c2", "d2")]
            batch.insert("Ledger", ["Id", "Amount"], rows)
        for _ in range(90):
            assert seen.acquire(timeout=60)
        for one in last_five:
            simulator.move("bank", "Bank", token=one["token"])
        for query in reading:
            query.result(60)


def test_refusals_have_their_codes(bank: Any, connect: Callable[..., Any]) -> None:
    with pytest.raises(OutOfRange, match="too far in the past"):
        list(changes(bank, None, "2020-01-01T00:00:00Z", None))
    with pytest.raises(InvalidArgument, match="does not belong to the Change Stream"):
        list(changes(bank, "zzz", bank.opened_at, None))
    stranger = connect(database_role="stranger")
    with pytest.raises(PermissionDenied, match="SELECT on change stream Bank is missing"):
        list(changes(stranger, None, bank.opened_at, None))


def test_the_schema_is_read_back(bank: Any) -> None:
    bank.update_ddl(["ALTER TABLE Ledger ADD COLUMN Note STRING(MAX)"]).result(30)
    bank.reload()
    with bank.snapshot() as snapshot:
        rows = list(
            snapshot.execute_sql(
                "SELECT column_name, spanner_type FROM information_schema.columns "
                "WHERE table_name = @t ORDER BY ordinal_position",
                params={"t": "Ledger"},
                param_types={"t": param_types.STRING},
            )
        )

    assert bank.exists()
    assert rows[-1] == ["Note", "STRING(MAX)"]
    assert any("Note STRING(MAX)" in statement for statement in bank.ddl_statements)
