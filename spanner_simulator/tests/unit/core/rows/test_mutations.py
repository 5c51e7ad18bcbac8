from __future__ import annotations

import pytest

from spanner_simulator.core.rows.key_sets import KeyBound, KeySet, KeySpan
from spanner_simulator.core.rows.mutations import Delete, Mutation
from spanner_simulator.errors import SpannerError
from unit.core.rows.conftest import Shop, delete, write


def filled() -> Shop:
    """One table with the rows 1 and 2."""
    shop = Shop()
    shop.table("T", ["K INT64", "A INT64", "N INT64"], "K")
    shop.follow()
    shop.commit(write("insert", "T", "K A N", ["1", "10", "0"], ["2", "20", "0"]))
    return shop


def put(kind: str, key: int, value: int) -> Mutation:
    return write(kind, "T", "K A", [str(key), str(value)])


def gone(key: int) -> Delete:
    return delete("T", [str(key)])


COLLAPSED = [
    ([put("insert", 3, 1), gone(3)], []),
    ([put("replace", 1, 7)], [("DELETE", 1, 10, None), ("INSERT", 1, None, 7)]),
    ([gone(1), put("insert", 1, 7), gone(1)], [("DELETE", 1, 10, None)]),
    ([put("update", 1, 10)], [("UPDATE", 1, 10, 10)]),
    (
        # Committed rows of a range, and those of the transaction.
        [
            put("insert", 3, 1),
            Delete("T", KeySet(spans=(KeySpan(KeyBound(["2"], True), KeyBound(["3"], True)),))),
        ],
        [("DELETE", 2, 20, None)],
    ),
]


@pytest.mark.parametrize(("mutations", "changes"), COLLAPSED)
def test_several_writes_to_a_row_collapse(
    mutations: list[Mutation], changes: list[tuple[object, ...]]
) -> None:
    shop = filled()
    shop.apply(*mutations)
    assert [
        (
            change.mod_type,
            (change.new or change.old or {})["K"],
            change.old and change.old["A"],
            change.new and change.new["A"],
        )
        for change in shop.writes.changes()
    ] == changes


@pytest.mark.parametrize(
    ("mutation", "message"),
    [
        (put("insert", 1, 1), "ALREADY_EXISTS"),
        (put("update", 3, 1), "NOT_FOUND"),
        (delete("T", []), "FAILED_PRECONDITION"),
        (delete("T", ["1", "2"]), "FAILED_PRECONDITION"),
    ],
)
def test_refusals(mutation: Mutation, message: str) -> None:
    with pytest.raises(SpannerError, match=message):
        filled().apply(mutation)
