"""Money only moves, whatever is transferred; and a cut that says otherwise is a fault."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.local_stack.demo.bank import (
    ACCOUNT_COLUMNS,
    ACCOUNTS,
    LEDGER,
    LEDGER_COLUMNS,
    Bank,
    Transfer,
    schema_statements,
)

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
