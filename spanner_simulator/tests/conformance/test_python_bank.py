"""The official Python client, unchanged, against the simulator: the way every user meets it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from google.api_core.exceptions import InvalidArgument, OutOfRange, PermissionDenied
from google.cloud import spanner
from google.cloud.spanner_v1 import param_types

from conformance.bank import ACCOUNTS, account, changes, read_all, transfers
from spanner_simulator import Simulator


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
