from __future__ import annotations

import pytest

from spanner_simulator.core.rows.key_sets import (
    KeyBound,
    KeySpan,
    decode_key,
    key_range,
    prefix_range,
    whole_key,
)
from spanner_simulator.errors import Code, SpannerError


@pytest.fixture
def table(shop):
    return shop.table("T", ["A INT64", "B STRING"], "A -B")


def test_keys_in_plain_form_get_the_tables_types(table) -> None:
    assert decode_key(table, ["1", "x"]) == [1, "x"]
    assert decode_key(table, ["1"]) == [1]
    assert whole_key(table, ["1", "x"]) == table.encoded_key({"A": 1, "B": "x"})


@pytest.mark.parametrize("keys", [["1"], ["1", "x", "y"]])
def test_a_key_has_all_its_parts(table, keys: list[str]) -> None:
    with pytest.raises(
        SpannerError, match=r"Wrong number of key parts for T\. Expected 2"
    ) as caught:
        whole_key(table, list(keys))

    assert caught.value.code is Code.FAILED_PRECONDITION


def test_an_index_key_stands_for_all_rows_that_begin_with_it(table) -> None:
    where = prefix_range(table, ["1"], 1)
    inside = [table.encoded_key({"A": 1, "B": text}) for text in ("", "x", None)]

    assert all(where.holds(key) for key in inside)
    assert not where.holds(table.encoded_key({"A": 2, "B": ""}))
    with pytest.raises(SpannerError, match="Expected 1 key parts, found 2"):
        prefix_range(table, ["1", "x"], 1)


@pytest.mark.parametrize(
    ("start", "end", "inside"),
    [(True, True, [1, 2, 3]), (False, True, [2, 3]), (True, False, [1, 2]), (False, False, [2])],
)
def test_ends_of_a_span(table, start: bool, end: bool, inside: list[int]) -> None:
    where = key_range(table, KeySpan(KeyBound(["1"], start), KeyBound(["3"], end)))
    keys = {number: table.encoded_key({"A": number, "B": "x"}) for number in range(5)}

    assert [number for number, key in keys.items() if where.holds(key)] == inside


def test_no_span_is_the_whole_table(table) -> None:
    where = key_range(table, None)

    assert where.holds(table.encoded_key({"A": None, "B": None}))
    assert not where.holds(b"U\x00")
