"""The bank over the official client, against the simulator in this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from spanner_simulator import Simulator, SimulatorConfig
from tidegate.local_stack.demo.bank import ACCOUNTS, LEDGER, STREAM, Bank
from tidegate.local_stack.demo.bank_database import (
    create_bank_database,
    load_history,
    open_accounts,
    open_database,
    quiet_environment,
)
from tidegate.local_stack.demo.run import bank_layout
from tidegate.local_stack.demo.workload import Pace, Progress, Tickets, run_workload
from tidegate.local_stack.judge.log import fetch_commit_log
from tidegate.local_stack.judge.source import SpannerSource
from tidegate.local_stack.parts.database_name import DatabaseName

BANK = Bank(accounts=20, seed=3)
TRANSFERS = 40


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with Simulator(SimulatorConfig(stream_partitions=4)) as running:
        yield running


@pytest.fixture(scope="module")
def worked(simulator: Simulator) -> tuple[DatabaseName, Any, int, Progress]:
    """A bank after some transfers by three customers at once."""
    name = DatabaseName(address=simulator.grpc_address)
    create_bank_database(name)
    database = open_database(name)
    opened_us = open_accounts(database, BANK)
    tickets, progress = Tickets(Pace(transfers=TRANSFERS)), Progress()
    for customer in run_workload(
        database, bank=BANK, tickets=tickets, progress=progress, threads=3
    ):
        customer.join(60)
    return name, database, opened_us, progress


def test_every_transfer_is_committed_once(worked: Any):
    _, _, opened_us, progress = worked

    assert progress.failure == ""
    assert progress.transfers == TRANSFERS
    assert progress.last_commit_us > opened_us


def test_money_only_moves_at_any_time(worked: Any, simulator: Simulator):
    name, database, opened_us, progress = worked
    source = SpannerSource(database, bank_layout())
    log = fetch_commit_log(simulator.control_address, database=name.path, stream=STREAM)
    instants = [transaction.commit_timestamp_us for transaction in log]

    assert instants[0] == opened_us
    assert max(instants) == progress.last_commit_us
    for at_us in (opened_us - 1, opened_us, instants[len(instants) // 2], None):
        cut = {table: source.read(table, at_us=at_us) for table in source.tables()}
        assert BANK.faults(cut, opened=at_us is None or at_us >= opened_us) == []
    assert len(cut[LEDGER]["TransferId"]) == TRANSFERS
    assert sum(cut[ACCOUNTS]["Transfers"]) == 2 * TRANSFERS


def test_the_log_names_each_transfer_and_most_span_stream_partitions(
    worked: Any, simulator: Simulator
):
    name = worked[0]
    log = fetch_commit_log(simulator.control_address, database=name.path, stream=STREAM)
    transfers = [transaction for transaction in log if transaction.tag]

    assert {transaction.tag for transaction in transfers} == {
        f"transfer-{number}" for number in range(TRANSFERS)
    }
    assert all(len(transaction.changes) == 3 for transaction in transfers)
    across = [one for one in transfers if len(one.stream_partition_tokens) > 1]
    assert len(across) > TRANSFERS / 2


def test_a_committed_at_column_holds_the_commit_time(worked: Any, simulator: Simulator):
    name, database, _, _ = worked
    log = fetch_commit_log(simulator.control_address, database=name.path, stream=STREAM)
    ledger = SpannerSource(database, bank_layout()).read(LEDGER, at_us=None)
    committed = {
        change.keys["TransferId"]: transaction.commit_timestamp_us
        for transaction in log
        for change in transaction.changes
        if change.table == LEDGER
    }

    assert dict(zip(ledger["TransferId"], ledger["CommittedAt"], strict=True)) == committed


def test_a_failure_stops_all_customers(worked: Any):
    _, database, _, _ = worked
    tickets, progress = Tickets(Pace(transfers=10)), Progress()
    stranger = Bank(accounts=20, seed=99)
    for customer in run_workload(
        database, bank=stranger, tickets=tickets, progress=progress, threads=2
    ):
        customer.join(60)

    assert progress.failure.startswith("KeyError")
    assert progress.transfers == 0

    assert tickets.take() is None


def test_the_environment_names_the_address_and_switches_reporting_off():
    environment = quiet_environment("127.0.0.1:9010")

    assert environment["SPANNER_EMULATOR_HOST"] == "127.0.0.1:9010"
    assert environment["SPANNER_DISABLE_BUILTIN_METRICS"] == "true"


def test_a_history_is_there_as_it_was_made(simulator: Simulator):
    database = create_bank_database(
        DatabaseName(address=simulator.grpc_address, instance="history", database="history")
    )
    history = BANK.after(range(50))
    load_history(database, history, rows_at_once=7)
    source = SpannerSource(database, bank_layout())
    accounts = source.read(ACCOUNTS, at_us=None)
    ledger = source.read(LEDGER, at_us=None)

    assert sorted(zip(*accounts.values(), strict=True)) == sorted(history.accounts)
    assert {row[:5] for row in zip(*ledger.values(), strict=True)} == set(history.ledger)
