from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanner_simulator.core.rows.mutations import Delete, KeyBound, KeySet, KeySpan, Mutation
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
    ([put("insert", 3, 1), put("update", 3, 2)], [("INSERT", 3, None, 2)]),
    ([put("insert", 3, 1), gone(3)], []),
    ([put("update", 1, 7), put("update", 1, 8)], [("UPDATE", 1, 10, 8)]),
    ([put("update", 1, 7), gone(1)], [("DELETE", 1, 10, None)]),
    ([put("replace", 1, 7)], [("DELETE", 1, 10, None), ("INSERT", 1, None, 7)]),
    ([put("replace", 3, 7)], [("INSERT", 3, None, 7)]),
    ([gone(1), put("insert", 1, 7), gone(1)], [("DELETE", 1, 10, None)]),
    ([put("insert_or_update", 1, 7)], [("UPDATE", 1, 10, 7)]),
    ([put("insert_or_update", 3, 7)], [("INSERT", 3, None, 7)]),
    ([gone(3)], []),
    ([put("update", 1, 10)], [("UPDATE", 1, 10, 10)]),
    (
        [put("update", 2, 1), put("update", 1, 1), put("update", 2, 2)],
        [("UPDATE", 2, 20, 2), ("UPDATE", 1, 10, 1)],
    ),
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


def test_an_update_keeps_the_columns_that_it_does_not_name() -> None:
    shop = filled()
    shop.apply(write("update", "T", "K A", ["1", None]))
    (change,) = shop.writes.changes()

    assert (change.written, change.new) == ({"A"}, {"K": 1, "A": None, "N": 0})


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


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["insert_or_update", "replace", "delete"]),
            st.integers(1, 3),
            st.integers(0, 9),
        )
    )
)
def test_net_changes_lead_from_the_old_rows_to_the_new_ones(
    steps: list[tuple[str, int, int]],
) -> None:
    shop = filled()
    shop.apply(*(gone(key) if kind == "delete" else put(kind, key, a) for kind, key, a in steps))
    rows, writes = shop.store.tables["t"], shop.writes
    state = {key: rows.current(key) for _, key in writes.places}
    for change in writes.changes():
        assert state[change.key] == change.old
        state[change.key] = change.new

    assert state == {key: writes.row("t", key) for _, key in writes.places}
