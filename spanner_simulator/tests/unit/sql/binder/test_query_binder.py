"""Statements with the answers that Google's emulator 1.5.28 gave to them.

Each line of the data is one statement: columns with types and rows, or code and message (without
its place). Rows without ORDER BY are compared as sets, as their order means nothing.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from spanner_simulator.errors import SpannerError

HERE = Path(__file__).parent
RECORDED: dict[str, list[dict[str, Any]]] = {
    name: json.loads((HERE / f"{name}_answers.json").read_text()) for name in ("google", "postgres")
}


def _check(world: Any, case: dict[str, Any]) -> None:
    if "code" in case:
        with pytest.raises(SpannerError) as caught:
            world.run(case["sql"])
        assert (case["code"], case["message"]) == (
            caught.value.code.name,
            caught.value.message.split("\n", 1)[0].split(" [at ", 1)[0],
        )
        return
    answer = world.run(case["sql"])
    assert case["columns"] == [list(column) for column in answer.columns]
    if "ORDER BY" in re.sub(r"\(.*\)", "", case["sql"]):
        assert case["rows"] == answer.rows
    else:
        assert sorted(map(str, case["rows"])) == sorted(map(str, answer.rows))


@pytest.mark.parametrize("case", RECORDED["google"], ids=lambda case: case["sql"][:60])
def test_google(shared_world: Any, case: dict[str, Any]) -> None:
    _check(shared_world, case)


@pytest.mark.parametrize("case", RECORDED["postgres"], ids=lambda case: case["sql"][:60])
def test_postgres(shared_pg_world: Any, case: dict[str, Any]) -> None:
    _check(shared_pg_world, case)


def test_a_query_in_from_leaves_out_what_it_leaves_out(world) -> None:
    """Nothing is left to compute outside of it, but all the more within."""
    inside = "SELECT Id FROM T WHERE S IS NOT NULL AND S <> 'a'"
    kept = world.rows(f"{inside} ORDER BY Id")

    assert 0 < len(kept) < len(world.rows("SELECT Id FROM T"))
    assert sorted(world.rows(f"SELECT Id FROM ({inside})")) == kept
    assert sorted(world.rows(f"SELECT Id FROM (SELECT Id FROM ({inside}))")) == kept
    assert world.rows("SELECT x FROM (SELECT DISTINCT Id IS NULL AS x FROM T)") == [[False]]
