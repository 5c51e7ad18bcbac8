from __future__ import annotations

import pytest

from tidegate.spanner_simulator.core.rows.mutations import Write
from tidegate.spanner_simulator.core.sql_engine import run_select
from tidegate.spanner_simulator.core.values import Plain, Value
from tidegate.spanner_simulator.errors import Code, SpannerError

ROWS = [(1, 10, "a"), (2, 30, None), (3, 20, "c"), (4, None, "c")]


@pytest.fixture
def run(bank):
    for key, balance, name in ROWS:
        plain: list[Plain] = [str(key), None if balance is None else str(balance), name]
        bank.commit(Write("insert", "Accounts", ("Id", "Balance", "Name"), (plain,)))

    def select(sql: str, transaction=None, read_us=None, **parameters: Plain) -> list[list[Value]]:
        _, rows = run_select(
            bank.database,
            sql,
            parameters,
            transaction=transaction,
            read_us=read_us,
            check_select=lambda _table: None,
        )
        return rows

    return select


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ("Id = 2", [2]),
        ("Balance >= 20", [2, 3]),
        ("Balance <> 20", [1, 2]),
        ("Balance IS NULL", [4]),
        ("NOT (Balance = 10)", [2, 3]),
        ("Name = 'c' AND Balance > 5", [3]),
        ("Name = 'a' OR Balance IS NULL", [1, 4]),
        ("Name IN ('a', 'x')", [1]),
        ("Id NOT IN (1, 2)", [3, 4]),
        ("Id BETWEEN 2 AND 3", [2, 3]),
        ("5 < Balance", [1, 2, 3]),
        ("Balance = NULL", []),
        ("Id < 2.5", "no FLOAT64 for INT64"),
        ("TRUE", [1, 2, 3, 4]),
        ("Id > -1 AND Id <= 1", [1]),
    ],
)
def test_where(run, where: str, ids: list[int] | str) -> None:
    sql = f"SELECT Id FROM Accounts WHERE {where} ORDER BY Id"
    if isinstance(ids, str):
        with pytest.raises(SpannerError, match="No matching signature"):
            run(sql)
    else:
        assert run(sql) == [[number] for number in ids]


def test_parameters_take_the_type_of_what_they_are_compared_with(run) -> None:
    assert run("SELECT Name FROM Accounts WHERE Id = @key", key="3") == [["c"]]
    assert run("SELECT Id FROM Accounts WHERE Name = @n", n="a") == [[1]]
    assert run("SELECT Id FROM Accounts WHERE Id IN UNNEST(@l)", l=["1", "4"]) == [[1], [4]]
    assert run("SELECT Id FROM Accounts ORDER BY Id LIMIT @n", n="2") == [[1], [2]]


def test_star_order_and_limit(run) -> None:
    assert run("SELECT * FROM Accounts ORDER BY Balance DESC LIMIT 2") == [
        [2, 30, None],
        [3, 20, "c"],
    ]
    assert run("SELECT Id FROM Accounts ORDER BY Balance, Id LIMIT 1") == [[4]]


def test_aggregates_leave_nulls_out(run) -> None:
    sql = "SELECT COUNT(*), COUNT(Balance), SUM(Balance), MIN(Balance), MAX(Name) FROM Accounts"

    assert run(sql) == [[4, 3, 60, 10, "c"]]
    assert run(sql + " WHERE Id > 100") == [[0, 0, None, None, None]]


def test_select_without_a_table(run) -> None:
    assert run("SELECT 1") == [[1]]


def test_a_read_in_the_past(run, bank) -> None:
    first_us = bank.database.streams.state("Bank").log.transactions[0].facts.commit_timestamp_us

    assert run("SELECT Id FROM Accounts", read_us=first_us) == [[1]]


def test_equalities_on_the_key_narrow_what_a_transaction_is_held_to(run, bank) -> None:
    update_two = Write("update", "Accounts", ("Id", "Name"), (["2", "z"],))
    narrow, wide = bank.database.begin(), bank.database.begin()
    run("SELECT Name FROM Accounts WHERE Id = @k AND Name = 'a'", transaction=narrow, k="1")
    run("SELECT Name FROM Accounts WHERE Name = 'a'", transaction=wide)
    bank.commit(update_two)

    assert narrow.conflict(bank.database._store.tables) is None
    assert wide.conflict(bank.database._store.tables) == "accounts"


@pytest.mark.parametrize(
    ("sql", "code", "message"),
    [
        ("SELECT x FROM Accounts", Code.INVALID_ARGUMENT, "Unrecognized name: x"),
        ("SELECT 1 FROM Nope", Code.INVALID_ARGUMENT, "Table not found: Nope"),
        ("SELECT Id FROM Accounts WHERE Id = @q", Code.INVALID_ARGUMENT, "No parameter found"),
        ("SELECT Id, COUNT(*) FROM Accounts", Code.UNIMPLEMENTED, "beside aggregates"),
        ("SELECT Id FROM Accounts WHERE COUNT(*) = 1", Code.INVALID_ARGUMENT, "aggregate"),
        ("SELECT SUM(Name) FROM Accounts", Code.INVALID_ARGUMENT, "SUM needs a numeric column"),
        ("SELECT Id FROM Accounts LIMIT -1", Code.INVALID_ARGUMENT, "non-negative"),
    ],
)
def test_refusals(run, sql: str, code: Code, message: str) -> None:
    with pytest.raises(SpannerError, match=message) as caught:
        run(sql)

    assert caught.value.code is code
