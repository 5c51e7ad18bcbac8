"""Conditions on key columns narrow what a transaction has read, and thereby what aborts it."""

from __future__ import annotations

import pytest

from spanner_simulator.core.rows.mutations import Write
from spanner_simulator.errors import Code, SpannerError
from unit.sql.conftest import NOW_US


@pytest.mark.parametrize(
    ("where", "is_held_to_row_two"),
    [
        ("1 = Id AND S = 'a'", False),
        ("Id = @one", False),
        ("Id IN (1, 3)", False),
        ("Id IN UNNEST(@ids)", False),
        ("Id > 2", False),
        ("Id BETWEEN 3 AND 9", False),
        ("Id = NULL", False),
        ("Id = 1 OR S = 'a'", True),
        ("Id <= 2", True),
        ("Id + 0 = 1", True),
        ("NOT Id = 1", True),
        ("TRUE", True),
    ],
)
def test_a_transaction_is_held_to_what_it_needed(world, where, is_held_to_row_two) -> None:
    transaction = world.database.begin()
    sql = f"SELECT S FROM T WHERE {where}"
    world.run(sql, transaction=transaction, one="1", ids=["1", "3"])
    other = Write("update", "T", ("Id", "S"), (["2", "z"],))
    world.database.commit(world.database.begin(), [other], now_us=NOW_US)

    if is_held_to_row_two:
        with pytest.raises(SpannerError) as caught:
            world.database.commit(transaction, [], now_us=NOW_US)
        assert caught.value.code is Code.ABORTED
    else:
        world.database.commit(transaction, [], now_us=NOW_US)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT C.V FROM T JOIN C ON T.Id = C.Id WHERE T.Id = 1",
        "SELECT C.V FROM T LEFT JOIN C ON C.Id = 1 WHERE T.Id = 1",
        "WITH x AS (SELECT * FROM C) SELECT V FROM x WHERE Id = 1 AND K = 'a'",
        "SELECT (SELECT MAX(V) FROM C WHERE Id = 1)",
        "UPDATE C SET V = V + 1 WHERE Id = 1 AND K > 'a'",
    ],
)
def test_joins_views_and_dml_narrow_as_well(world, sql: str) -> None:
    transaction = world.database.begin()
    world.run(sql, transaction=transaction)
    other = [
        Write("update", "T", ("Id", "S"), (["3", "z"],)),
        Write("update", "C", ("Id", "K", "V"), (["3", "a", "0"],)),
    ]
    world.database.commit(world.database.begin(), other, now_us=NOW_US)

    world.database.commit(transaction, [], now_us=NOW_US)


def test_descending_keys(world) -> None:
    world.database.apply_ddl(
        ["CREATE TABLE Z (A INT64, B INT64) PRIMARY KEY (A, B DESC)"], now_us=NOW_US
    )
    world.run("INSERT INTO Z (A, B) VALUES (1, 1), (1, 2), (1, 3), (2, 2), (1, NULL)")
    assert world.rows("SELECT B FROM Z WHERE A = 1 AND B > 1 ORDER BY B") == [["2"], ["3"]]
    assert world.rows("SELECT B FROM Z WHERE A = 1 AND B >= 2 AND B < 3") == [["2"]]
    assert world.rows("SELECT B FROM Z WHERE A = 1 AND B <= 1") == [["1"]]
    assert world.rows("SELECT COUNT(*) FROM Z WHERE A < 2") == [["4"]]
    assert world.rows("SELECT A FROM Z WHERE A IN (1, 1, 2) AND B = 2") == [["1"], ["2"]]
