"""The bank's rows and changes: one total, whole rows, and accounts that come and go."""

from __future__ import annotations

import copy
from collections import Counter

import pytest

from tidegate.local_stack.demo.files.source_bank import FIELDS, SourceBank


def bank(**settings: int) -> SourceBank:
    return SourceBank(**{"accounts": 20, "rows": 30, "seed": 5, "opened_us": 1_000, **settings})


def total(made: SourceBank) -> object:
    return sum(row["balance"] for row in made.tables["accounts"].values())


def test_changes_lead_from_the_first_rows_to_the_last():
    made = bank()
    tables = copy.deepcopy(made.tables)
    kinds: Counter[tuple[str, str]] = Counter()
    for number in range(100):
        for change in made.transfer(number, at_us=2_000 + number):
            kinds[change.table, change.kind] += 1
            assert set(change.row) == {field["name"] for field in FIELDS[change.table]}
            if change.kind == "DELETE":
                assert tables[change.table].pop(change.row["id"]) == change.row
            else:
                assert (change.row["id"] in tables[change.table]) == (change.kind == "UPDATE")
                tables[change.table][change.row["id"]] = dict(change.row)
        assert total(made) == made.total == 20_000

    assert tables == made.tables
    assert len(made.tables["ledger"]) == 130
    assert kinds["accounts", "DELETE"] == 8
    assert kinds["accounts", "INSERT"] == 4


@pytest.mark.parametrize("transfers", [7, 24, 25, 26, 49, 300])
def test_an_account_stays_closed_after_the_first_one_is(transfers: int):
    made = bank()
    for number in range(transfers):
        made.transfer(number, at_us=2_000)

    assert len(made.tables["accounts"]) < 20


def test_two_accounts_stay_open():
    made = bank(accounts=2)
    for number in range(60):
        made.transfer(number, at_us=2_000)

    assert len(made.tables["accounts"]) == 2


def test_a_seed_gives_the_same_changes():
    first, second, other = bank(), bank(), bank(seed=6)

    assert first.tables == second.tables != other.tables
    assert first.transfer(0, at_us=9) == second.transfer(0, at_us=9)


def test_a_row_that_was_read_does_not_change_later():
    made = bank(accounts=2)
    row = made.tables["accounts"][1]
    before = dict(row)
    for number in range(10):
        made.transfer(number, at_us=2_000)

    assert row == before != made.tables["accounts"][1]
