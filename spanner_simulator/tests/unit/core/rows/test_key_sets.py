from __future__ import annotations

import pytest

from spanner_simulator.core.rows.key_sets import KeyBound, KeySpan, key_range, whole_key
from spanner_simulator.errors import Code, SpannerError


@pytest.fixture
def table(shop):
    return shop.table("T", ["A INT64", "B STRING"], "A -B")


@pytest.mark.parametrize("keys", [["1"], ["1", "x", "y"]])
def test_a_key_has_all_its_parts(table, keys: list[str]) -> None:
    with pytest.raises(
        SpannerError, match=r"Wrong number of key parts for T\. Expected 2"
    ) as caught:
        whole_key(table, list(keys))

    assert caught.value.code is Code.FAILED_PRECONDITION


@pytest.mark.parametrize(
    ("start", "end", "inside"),
    [(True, True, [1, 2, 3]), (False, True, [2, 3]), (True, False, [1, 2]), (False, False, [2])],
)
def test_ends_of_a_span(table, start: bool, end: bool, inside: list[int]) -> None:
    where = key_range(table, KeySpan(KeyBound(["1"], start), KeyBound(["3"], end)))
    keys = {number: table.encoded_key({"A": number, "B": "x"}) for number in range(5)}

    assert [number for number, key in keys.items() if where.holds(key)] == inside
