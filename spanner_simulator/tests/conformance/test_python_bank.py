"""The official Python client, unchanged, against the simulator: the way every user meets it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from google.api_core.exceptions import PermissionDenied

from conformance.bank import ACCOUNTS, read_all, transfers
from spanner_simulator import Simulator


def test_money_is_moved_by_concurrent_transactions_and_none_is_lost(bank: Any) -> None:
    transfers(bank, threads=4, each=15)
    ((total,),) = _query(bank, "SELECT SUM(Balance) FROM Accounts")
    ((entries,),) = _query(bank, "SELECT COUNT(*) FROM Ledger")
    assert (total, entries) == (100 * ACCOUNTS, 60)


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


def test_an_excluded_transaction_is_left_out_of_streams_that_allow_it(bank: Any) -> None:
    bank.update_ddl(["ALTER CHANGE STREAM Bank SET OPTIONS (allow_txn_exclusion = true)"]).result(
        30
    )
    opened = write(bank, "seen")

    def hidden(transaction: Any) -> None:
        transaction.insert("Ledger", ["Id"], [["hidden"]])

    bank.run_in_transaction(hidden, exclude_txn_from_change_streams=True)
    last = write(bank, "last")
    bank.opened_at = opened
    keys = sorted(mod[0]["Id"] for *_, table, mod, _ in read_all(bank, last) if table == "Ledger")
    assert keys == ["last", "seen"]


def _query(bank: Any, sql: str) -> list[Any]:
    with bank.snapshot() as snapshot:
        return list(snapshot.execute_sql(sql))


def write(bank: Any, name: str) -> Any:
    with bank.batch() as batch:
        batch.insert("Ledger", ["Id"], [[name]])
    return batch.committed


def test_a_role_may_do_what_it_was_granted_and_no_more(
    bank: Any, connect: Callable[..., Any]
) -> None:
    bank.update_ddl(
        [
            "CREATE ROLE reader",
            "GRANT SELECT ON TABLE Accounts TO ROLE reader",
            "GRANT SELECT ON CHANGE STREAM Bank TO ROLE reader",
            "GRANT EXECUTE ON TABLE FUNCTION READ_Bank TO ROLE reader",
        ]
    ).result(30)
    reader = connect(database_role="reader")
    reader.opened_at = bank.opened_at
    assert _query(reader, "SELECT COUNT(*) FROM Accounts") == [[20]]
    assert len(read_all(reader, bank.opened_at)) == 20
    with pytest.raises(PermissionDenied, match="Ledger"):
        _query(reader, "SELECT * FROM Ledger")
    with pytest.raises(PermissionDenied, match="Accounts"), reader.batch() as batch:
        batch.insert("Accounts", ["Id", "Balance"], [[1, 1]])
