"""The bank: money only moves, in memory and over the official client, by paced customers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanner_simulator import Simulator, SimulatorConfig
from tidegate.local_stack.demo import customers as customers_module
from tidegate.local_stack.demo.bank import (
    ACCOUNT_COLUMNS,
    ACCOUNTS,
    LEDGER,
    LEDGER_COLUMNS,
    STREAM,
    Bank,
    Transfer,
    schema_statements,
)
from tidegate.local_stack.demo.bank_database import (
    create_bank_database,
    load_history,
    open_accounts,
    open_database,
    quiet_environment,
)
from tidegate.local_stack.demo.bank_run import bank_layout
from tidegate.local_stack.demo.customers import Customers, Pace, Progress, Tickets, run_workload
from tidegate.local_stack.errors import PartFailedError
from tidegate.local_stack.judge.log import fetch_commit_log
from tidegate.local_stack.judge.source import SpannerSource
from tidegate.local_stack.parts.programs import DatabaseName

BANK = Bank(accounts=3, seed=7)


def cut(balances: list[int], ledger: list[tuple[int, int, int]]) -> dict[str, Any]:
    ids = [BANK.account_id(index) for index in range(3)]
    return {
        ACCOUNTS: {"AccountId": tuple(ids[: len(balances)]), "Balance": tuple(balances)},
        LEDGER: {
            "FromAccount": tuple(ids[debit] for debit, _, _ in ledger),
            "ToAccount": tuple(ids[credit] for _, credit, _ in ledger),
            "Amount": tuple(amount for _, _, amount in ledger),
        },
    }


def test_the_same_seed_gives_the_same_bank():
    again = Bank(accounts=3, seed=7)
    assert BANK.opening_rows() == again.opening_rows()
    assert [BANK.transfer(n) for n in range(20)] == [again.transfer(n) for n in range(20)]
    assert BANK.opening_rows() != Bank(accounts=3, seed=8).opening_rows()


def test_keys_are_spread_over_the_key_space():
    bank = Bank(accounts=200, seed=1)
    first_digits = {bank.account_id(index)[0] for index in range(200)}
    assert first_digits == set("0123456789abcdef")
    assert len({bank.account_id(index) for index in range(200)}) == 200


@given(st.integers(0, 10_000), st.integers(2, 50))
def test_a_transfer_is_between_two_accounts_of_the_bank(number: int, accounts: int):
    bank = Bank(accounts=accounts, seed=1)
    transfer = bank.transfer(number)
    ids = {bank.account_id(index) for index in range(accounts)}
    assert {transfer.debit, transfer.credit} <= ids
    assert transfer.debit != transfer.credit
    assert transfer.amount > 0


@given(st.integers(0, 200), st.integers(0, 200), st.integers(1, 100))
def test_settling_moves_money_and_leaves_nobody_in_debt(debit: int, credit: int, amount: int):
    payer, payee, paid = Transfer("t", "a", "b", amount, None).settle(debit, credit)
    before = {"a": debit, "b": credit}
    assert {payer, payee} == {"a", "b"}
    assert 0 <= paid <= amount
    assert before[payer] - paid >= 0
    assert (paid > 0) == (debit + credit > 0)


@pytest.mark.parametrize(
    ("tables", "opened", "faults"),
    [
        (cut([], []), False, 0),
        (cut([1000, 1000, 1000], []), True, 0),
        (cut([990, 1010, 1000], [(0, 1, 10)]), True, 0),
        (cut([], []), True, 1),
        (cut([1000, 1000, 1000], []), False, 1),
        (cut([990, 1010, 1000], []), True, 1),
        (cut([1000, 1000, 1000], [(0, 1, 10)]), True, 1),
        (cut([990, 1000, 1000], [(0, 1, 10)]), True, 2),
        (cut([990, 1010, 1000], [(0, 1, 10), (0, 1, 10)]), True, 1),
        (cut([1000, 1000], []), True, 1),
    ],
)
def test_a_cut_is_held_to_total_and_ledger(tables: Any, opened: bool, faults: int):
    assert len(BANK.faults(tables, opened=opened)) == faults


def test_the_schema_can_do_without_commit_timestamps():
    assert any("allow_commit_timestamp" in ddl for ddl in schema_statements())
    assert not any(
        "allow_commit_timestamp" in ddl for ddl in schema_statements(commit_timestamps=False)
    )


def test_a_bank_that_has_been_open_keeps_its_rules():
    found = BANK.after(range(100, 150))
    assert [row[0] for row in found.accounts] == [row[0] for row in BANK.opening_rows()]
    assert sum(row[3] for row in found.accounts) == 100
    assert len({row[0] for row in found.ledger}) == 50
    tables = {
        ACCOUNTS: dict(zip(ACCOUNT_COLUMNS, zip(*found.accounts, strict=True), strict=True)),
        LEDGER: dict(zip(LEDGER_COLUMNS, zip(*found.ledger, strict=True), strict=True)),
    }
    assert BANK.faults(tables, opened=True) == []


TRANSFERS = 40
BIG_BANK = Bank(accounts=20, seed=3)
OTHER_BANK = Bank(accounts=20, seed=99)


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with Simulator(SimulatorConfig(stream_partitions=4)) as running:
        yield running


@pytest.fixture
def name(simulator: Simulator, request: pytest.FixtureRequest) -> DatabaseName:
    """A database of the test's own."""
    own = f"d{abs(hash(request.node.name)) % 10**9}"
    return DatabaseName(address=simulator.grpc_address, instance=own, database=own)


def work(database: Any, bank: Bank, tickets: Tickets) -> Progress:
    progress = Progress()
    for customer in run_workload(
        database, bank=bank, tickets=tickets, progress=progress, threads=3
    ):
        customer.join(60)
    return progress


def test_money_only_moves_and_each_transfer_is_one_transaction(
    name: DatabaseName, simulator: Simulator
):
    create_bank_database(name)
    database = open_database(name)
    opened_us = open_accounts(database, BIG_BANK)
    progress = work(database, BIG_BANK, Tickets(Pace(transfers=TRANSFERS)))
    assert (progress.failure, progress.transfers) == ("", TRANSFERS)

    log = fetch_commit_log(simulator.control_address, database=name.path, stream=STREAM)
    instants = [transaction.commit_timestamp_us for transaction in log]
    assert (instants[0], max(instants)) == (opened_us, progress.last_commit_us)
    source = SpannerSource(database, bank_layout())
    for at_us in (opened_us - 1, opened_us, instants[len(instants) // 2], None):
        cut = {table: source.read(table, at_us=at_us) for table in source.tables()}
        assert BIG_BANK.faults(cut, opened=at_us is None or at_us >= opened_us) == []
    assert sum(cut[ACCOUNTS]["Transfers"]) == 2 * TRANSFERS
    committed = {
        change.keys["TransferId"]: transaction.commit_timestamp_us
        for transaction in log
        for change in transaction.changes
        if change.table == LEDGER
    }
    ledger = cut[LEDGER]
    assert dict(zip(ledger["TransferId"], ledger["CommittedAt"], strict=True)) == committed
    transfers = [transaction for transaction in log if transaction.tag]
    assert {transfer.tag for transfer in transfers} == {f"transfer-{n}" for n in range(TRANSFERS)}
    assert all(len(transfer.changes) == 3 for transfer in transfers)
    across = [transfer for transfer in transfers if len(transfer.stream_partition_tokens) > 1]
    assert len(across) > TRANSFERS / 2

    tickets = Tickets(Pace(transfers=10))
    failed = work(database, OTHER_BANK, tickets)
    assert failed.failure.startswith("KeyError")
    assert (failed.transfers, tickets.take()) == (0, None)


def test_the_environment_names_the_address_and_switches_reporting_off():
    environment = quiet_environment("127.0.0.1:9010")
    assert environment["SPANNER_EMULATOR_HOST"] == "127.0.0.1:9010"
    assert environment["SPANNER_DISABLE_BUILTIN_METRICS"] == "true"


def test_a_history_is_there_as_it_was_made(name: DatabaseName):
    database = create_bank_database(name)
    history = BIG_BANK.after(range(50))
    load_history(database, history, rows_at_once=7)
    source = SpannerSource(database, bank_layout())
    accounts = source.read(ACCOUNTS, at_us=None)
    ledger = source.read(LEDGER, at_us=None)
    assert sorted(zip(*accounts.values(), strict=True)) == sorted(history.accounts)
    assert {row[:5] for row in zip(*ledger.values(), strict=True)} == set(history.ledger)


ORDERED = 30
"""Transfers of the customers' program."""


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def customers(name: DatabaseName, tmp_path: Path) -> Iterator[Callable[..., Customers]]:
    """Make customers of an open bank; they are stopped at the end."""
    made: list[Customers] = []

    def make(bank: Bank = BIG_BANK, *, is_open: bool = True, **settings: Any) -> Customers:
        if is_open:
            open_accounts(create_bank_database(name), BIG_BANK)
        given = {"transfers": ORDERED, "rate_max": 0.0, "reserve": 0, "pauses": (), "threads": 2}
        log = tmp_path / "customers.log"
        made.append(Customers(name, bank=bank, log=log, **{**given, **settings}))
        return made[-1]

    yield make
    for one in made:
        one.stop()


def test_the_reserve_waits_for_the_word_and_then_all_is_done(customers: Any):
    made = customers(reserve=2)
    made.start()
    until(lambda: made.done >= ORDERED - 2)
    assert not made.has_finished
    made.finish()
    until(lambda: made.has_finished)
    assert made.done == ORDERED
    assert made.last_commit_us > 0
    assert made.retries >= 0


def test_a_pause_lasts_until_resume(customers: Any):
    made = customers(pauses=(5, 20))
    made.start()
    stops = []
    for pause in (5, 20):
        until(lambda pause=pause: made.done >= pause)
        time.sleep(0.5)
        stops.append(made.done)
        made.resume()
    until(lambda: made.has_finished)
    assert (stops, made.done) == ([5, 20], ORDERED)


def test_a_failure_is_reported_with_its_cause(customers: Any, monkeypatch: pytest.MonkeyPatch):
    """Also where the program has ended before its line is read."""
    has_ended = threading.Event()

    def loads(line: str) -> object:
        assert has_ended.wait(60)
        return json.loads(line)

    monkeypatch.setattr(customers_module, "json", SimpleNamespace(loads=loads))
    made = customers(OTHER_BANK)
    made.start()
    made._process.wait(60)
    threading.Timer(0.2, has_ended.set).start()
    with pytest.raises(PartFailedError, match="KeyError"):
        assert made.has_finished


def test_stopping_early_ends_the_program_if_there_is_one(customers: Any):
    made = customers(reserve=ORDERED)
    made.start()
    until(lambda: made.done >= 1)
    process = made._process
    made.stop()
    assert process.poll() is not None
    assert made.done < ORDERED
    never = customers(is_open=False)
    never.finish()
    never.stop()
    assert not never.has_finished


NEVER = float("inf")


@given(st.integers(0, 500), st.floats(0, 1_000), st.floats(1, 1_000))
def test_a_rate_keeps_transfers_apart(number: int, last_s: float, rate: float):
    pace = Pace(transfers=501, rate_max=rate)
    due_s = pace.due_s(number, taken_last_s=last_s, continued=0, finishing=False)
    assert due_s == last_s + 1 / rate


@pytest.mark.parametrize(
    ("number", "continued", "finishing", "due_s"),
    [
        (2, 0, False, 0.0),
        (3, 0, False, NEVER),
        (3, 1, False, 0.0),
        (5, 1, False, NEVER),
        (5, 2, False, 0.0),
        (5, 0, True, 0.0),
        # The reserve is slow, and its last one waits.
        (7, 2, False, 4.1),
        (9, 2, False, NEVER),
        (9, 0, True, 0.0),
    ],
)
def test_each_pause_waits_for_a_continue_and_the_reserve_for_the_finish(
    number: int, continued: int, finishing: bool, due_s: float
):
    pace = Pace(transfers=10, pauses=(3, 5), reserve=3, reserve_rate=10.0)
    due = pace.due_s(number, taken_last_s=4.0, continued=continued, finishing=finishing)
    assert due == due_s


def test_each_number_is_taken_once_by_many_threads():
    tickets = Tickets(Pace(transfers=300))
    taken: list[int] = []

    def take() -> None:
        while (number := tickets.take()) is not None:
            taken.append(number)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert sorted(taken) == list(range(300))


def test_finish_gives_the_last_ticket_and_stop_ends_the_wait():
    tickets = Tickets(Pace(transfers=1, reserve=1))
    taken: list[int | None] = []
    thread = threading.Thread(target=lambda: taken.append(tickets.take()))
    thread.start()
    before = list(taken)
    tickets.finishing.set()
    thread.join(30)
    assert (before, taken, tickets.take()) == ([], [0], None)
    stopped = Tickets(Pace(transfers=1, reserve=1))
    stopped.stopped.set()
    assert stopped.take() is None


def test_progress_is_one_json_line():
    progress = Progress()
    progress.committed(commit_us=7, retries=2)
    progress.committed(commit_us=5, retries=0)
    line = progress.line(began=0.0, done=True)
    assert "\n" not in line
    content = json.loads(line)
    assert (content["transfers"], content["retries"], content["last_commit_us"]) == (2, 2, 7)
    assert content["done"] is True
