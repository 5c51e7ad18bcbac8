"""The workload as a program of its own: it follows orders, and ends when its parent is gone."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from spanner_simulator import Simulator
from tidegate.local_stack.demo import customers as customers_module
from tidegate.local_stack.demo.bank import Bank
from tidegate.local_stack.demo.bank_database import (
    create_bank_database,
    open_accounts,
)
from tidegate.local_stack.demo.customers import Customers
from tidegate.local_stack.errors import PartFailedError
from tidegate.local_stack.parts.database_name import DatabaseName

BANK = Bank(accounts=10, seed=3)
TRANSFERS = 30


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def name() -> Iterator[DatabaseName]:
    with Simulator() as simulator:
        yield DatabaseName(address=simulator.grpc_address)


def make(
    name: DatabaseName,
    folder: Path,
    *,
    reserve: int,
    bank: Bank = BANK,
    pauses: tuple[int, ...] = (),
) -> Customers:
    return Customers(
        name,
        bank=bank,
        transfers=TRANSFERS,
        rate_max=0.0,
        reserve=reserve,
        pauses=pauses,
        log=folder / "customers.log",
        threads=2,
    )


def test_the_reserve_waits_for_the_word_and_then_all_is_done(name: DatabaseName, tmp_path: Path):
    opened_us = open_accounts(create_bank_database(name), BANK)
    customers = make(name, tmp_path, reserve=2)
    customers.start()
    try:
        until(lambda: customers.done >= TRANSFERS - 2)
        assert not customers.has_finished
        customers.finish()
        until(lambda: customers.has_finished)
    finally:
        customers.stop()

    assert customers.done == TRANSFERS
    assert customers.last_commit_us > opened_us
    assert customers.retries >= 0


def test_a_pause_lasts_until_resume(name: DatabaseName, tmp_path: Path):
    open_accounts(create_bank_database(name), BANK)
    customers = make(name, tmp_path, reserve=0, pauses=(5, 20))
    customers.start()
    stops = []
    try:
        for pause in (5, 20):
            until(lambda pause=pause: customers.done >= pause)
            time.sleep(1.0)
            stops.append(customers.done)
            customers.resume()
        until(lambda: customers.has_finished)
    finally:
        customers.stop()

    assert (stops, customers.done) == ([5, 20], TRANSFERS)


def test_a_failure_is_reported_with_its_cause(name: DatabaseName, tmp_path: Path):
    open_accounts(create_bank_database(name), BANK)
    customers = make(name, tmp_path, reserve=0, bank=Bank(accounts=10, seed=4))
    customers.start()
    try:
        with pytest.raises(PartFailedError, match="KeyError"):
            until(lambda: customers.has_finished)
    finally:
        customers.stop()


def test_the_cause_is_waited_for_where_the_program_ends_before_its_line_is_read(
    name: DatabaseName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    open_accounts(create_bank_database(name), BANK)
    customers = make(name, tmp_path, reserve=0, bank=Bank(accounts=10, seed=4))
    has_ended = threading.Event()

    def loads(line: str) -> object:
        assert has_ended.wait(60)
        return json.loads(line)

    monkeypatch.setattr(customers_module, "json", SimpleNamespace(loads=loads))
    customers.start()
    process = customers._process
    assert process is not None
    process.wait(60)
    threading.Timer(0.2, has_ended.set).start()
    with pytest.raises(PartFailedError, match="KeyError"):
        assert customers.has_finished
    customers.stop()


def test_stopping_early_ends_the_program(name: DatabaseName, tmp_path: Path):
    open_accounts(create_bank_database(name), BANK)
    customers = make(name, tmp_path, reserve=TRANSFERS)
    customers.start()
    until(lambda: customers.done >= 1)
    process = customers._process
    customers.stop()

    assert process is not None
    assert process.poll() is not None
    assert customers.done < TRANSFERS


def test_stopping_what_never_ran_is_nothing(tmp_path: Path):
    customers = make(DatabaseName(address="nowhere:1"), tmp_path, reserve=0)
    customers.finish()
    customers.stop()

    assert not customers.has_finished
