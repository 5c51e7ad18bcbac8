"""Statements with the answers that Google's emulator 1.5.28 gave to them.

Those that existing readers of change streams send are among them. Each line is one: columns with
types and rows, or code and message (without its place); UNIMPLEMENTED is the simulator's own. Rows
without ORDER BY are compared as sets. DML is in a transaction that nobody commits.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from spanner_simulator.errors import SpannerError

HERE = Path(__file__).parent
CASES = [
    pytest.param(world, case, id=case["sql"][:60])
    for world in ("google", "postgres", "shop")
    for case in json.loads((HERE / f"{world}_answers.json").read_text())
]


@pytest.fixture(name="worlds")
def worlds_fixture(shared_world, shared_pg_world, shared_shop) -> dict[str, Any]:
    return {"google": shared_world, "postgres": shared_pg_world, "shop": shared_shop}


@pytest.mark.parametrize(("world", "case"), CASES)
def test_answers(worlds: dict[str, Any], world: str, case: dict[str, Any]) -> None:
    asked, sql, parameters = worlds[world], case["sql"], case.get("parameters", {})
    transaction = asked.database.begin()
    if "code" in case:
        with pytest.raises(SpannerError) as caught:
            asked.run(sql, transaction=transaction, **parameters)
        told = caught.value.message.split("\n", 1)[0].split(" [at ", 1)[0]
        assert (case["code"], case["message"]) == (caught.value.code.name, told)
        return
    answer = asked.run(sql, transaction=transaction, **parameters)
    assert (case["columns"], case.get("count")) == (list(map(list, answer.columns)), answer.count)
    if "ORDER BY" in re.sub(r"\(.*\)", "", sql):
        assert case["rows"] == answer.rows
    else:
        assert sorted(map(str, case["rows"])) == sorted(map(str, answer.rows))


def test_a_query_in_from_leaves_out_what_it_leaves_out(shared_world) -> None:
    """Nothing is left to compute outside of it, but all the more within."""
    inside = "SELECT Id FROM T WHERE S IS NOT NULL AND S <> 'a'"

    for sql in (
        inside,
        f"SELECT Id FROM ({inside})",
        f"SELECT Id FROM (SELECT Id FROM ({inside}))",
    ):
        assert shared_world.rows(sql) == [["3"]]
    distinct = "SELECT x FROM (SELECT DISTINCT Id IS NULL AS x FROM T)"
    assert shared_world.rows(distinct) == [[False]]


def test_a_nan_among_the_keys_is_greater_than_all_in_postgresql(pg_world: Any) -> None:
    pg_world.database.apply_ddl(["CREATE TABLE f (f float8 PRIMARY KEY, s text)"], now_us=1)
    pg_world.run("INSERT INTO f (f, s) VALUES ('NaN', 'n'), (1.5, 'o'), ('-Infinity', 'm')")
    assert sorted(pg_world.rows("SELECT s FROM f WHERE f > 1")) == [["n"], ["o"]]
    assert sorted(pg_world.rows("SELECT s FROM f WHERE f < 'NaN'")) == [["m"], ["o"]]
    assert pg_world.rows("SELECT s FROM f WHERE f = 'NaN'") == [["n"]]
    assert pg_world.rows("SELECT s FROM f ORDER BY f") == [["m"], ["o"], ["n"]]
