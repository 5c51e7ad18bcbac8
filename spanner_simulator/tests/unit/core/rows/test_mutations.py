from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanner_simulator.core.rows.expressions import NoExpressions
from spanner_simulator.core.rows.incoming_rows import Evaluation
from spanner_simulator.core.rows.mutations import (
    Delete,
    KeyBound,
    KeySet,
    KeySpan,
    Mutation,
    Write,
    key_range,
)
from spanner_simulator.core.rows.row_writer import RowWriter
from spanner_simulator.core.rows.storage import TableRows
from spanner_simulator.core.rows.table_rules import build_rules
from spanner_simulator.core.rows.write_set import WriteSet
from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.ddl import parse_ddl
from spanner_simulator.core.schema.statement_rules import apply_statement
from spanner_simulator.errors import Code, SpannerError


class Rig:
    """One table with the rows 1 and 2, and a way to apply mutations to it."""

    def __init__(self) -> None:
        self.catalogue = Catalogue()
        statement = (
            "CREATE TABLE T (K INT64 NOT NULL, L STRING(MAX), A INT64, N INT64 NOT NULL, "
            "C TIMESTAMP OPTIONS (allow_commit_timestamp=true), D TIMESTAMP) PRIMARY KEY (K, L)"
        )
        apply_statement(self.catalogue, parse_ddl(statement), now_us=1)
        self.table = self.catalogue.table("T")
        self.rows = {"t": TableRows()}
        self.rules = build_rules(self.catalogue)
        for key in (1, 2):
            row = {"K": key, "L": "x", "A": key * 10, "N": 0, "C": None, "D": None}
            self.rows["t"].write(self.table.encoded_key(row), row, commit_us=5, commit_number=1)

    def apply(self, *mutations: Mutation) -> WriteSet:
        writes = WriteSet(self.rules, self.rows)
        RowWriter(writes, Evaluation(NoExpressions(), "GOOGLE_STANDARD_SQL", 77)).apply(mutations)
        writes.resolve(77_000)
        return writes

    def summary(self, *mutations: Mutation) -> list[tuple[object, ...]]:
        return [
            (
                change.mod_type,
                (change.new or change.old or {})["K"],
                change.old and change.old["A"],
                change.new and change.new["A"],
            )
            for change in self.apply(*mutations).changes()
        ]


def write(kind: str, key: int, a: int | None) -> Write:
    plain = None if a is None else str(a)
    return Write(kind, "t", ("K", "L", "a", "N"), ([str(key), "x", plain, "0"],))  # type: ignore[arg-type]


def delete(key: int) -> Delete:
    return Delete("T", KeySet(keys=([str(key), "x"],)))


COLLAPSED = [
    ([write("insert", 3, 1), write("update", 3, 2)], [("INSERT", 3, None, 2)]),
    ([write("insert", 3, 1), delete(3)], []),
    ([write("update", 1, 7), write("update", 1, 8)], [("UPDATE", 1, 10, 8)]),
    ([write("update", 1, 7), delete(1)], [("DELETE", 1, 10, None)]),
    ([write("replace", 1, 7)], [("DELETE", 1, 10, None), ("INSERT", 1, None, 7)]),
    ([write("replace", 3, 7)], [("INSERT", 3, None, 7)]),
    ([delete(1), write("insert", 1, 7), delete(1)], [("DELETE", 1, 10, None)]),
    ([write("insert_or_update", 1, 7)], [("UPDATE", 1, 10, 7)]),
    ([write("insert_or_update", 3, 7)], [("INSERT", 3, None, 7)]),
    ([delete(3)], []),
    ([write("update", 1, 10)], [("UPDATE", 1, 10, 10)]),
    (
        [write("update", 2, 1), write("update", 1, 1), write("update", 2, 2)],
        [("UPDATE", 2, 20, 2), ("UPDATE", 1, 10, 1)],
    ),
]


@pytest.mark.parametrize(("mutations", "changes"), COLLAPSED)
def test_several_writes_to_a_row_collapse(
    mutations: list[Mutation], changes: list[tuple[object, ...]]
) -> None:
    assert Rig().summary(*mutations) == changes


def test_an_update_keeps_the_columns_that_it_does_not_name() -> None:
    mutation = Write("update", "T", ("K", "L", "A"), (["1", "x", None],))
    (change,) = Rig().apply(mutation).changes()

    assert change.written == {"A"}
    assert change.new == {"K": 1, "L": "x", "A": None, "N": 0, "C": None, "D": None}


def test_deleting_a_range_reaches_committed_rows_and_those_of_the_transaction() -> None:
    span = KeySpan(KeyBound(["2"], inclusive=True), KeyBound(["3"], inclusive=True))
    changes = Rig().summary(write("insert", 3, 1), Delete("T", KeySet(spans=(span,))))

    assert changes == [("DELETE", 2, 20, None)]


@pytest.mark.parametrize(
    ("start_inclusive", "end_inclusive", "keys"),
    [(True, True, [1, 2]), (False, True, [2]), (True, False, [1]), (False, False, [])],
)
def test_ends_of_a_range(start_inclusive: bool, end_inclusive: bool, keys: list[int]) -> None:
    rig = Rig()
    span = KeySpan(KeyBound(["1"], start_inclusive), KeyBound(["2"], end_inclusive))
    found = rig.rows["t"].scan(key_range(rig.table, span), None)

    assert [row["K"] for _, row in found] == keys


def test_the_commit_timestamp_is_filled_in_where_it_is_allowed() -> None:
    columns = ("K", "L", "N", "C")
    placeholder = "spanner.commit_timestamp()"
    (change,) = Rig().apply(Write("insert", "T", columns, (["9", "", "0", placeholder],))).changes()

    assert change.new is not None
    assert change.new["C"] == 77_000
    with pytest.raises(SpannerError, match="allow_commit_timestamp"):
        Rig().apply(Write("insert", "T", (*columns[:3], "D"), (["9", "", "0", placeholder],)))


@pytest.mark.parametrize(
    ("mutation", "code"),
    [
        (write("insert", 1, 1), Code.ALREADY_EXISTS),
        (write("update", 3, 1), Code.NOT_FOUND),
        (Write("insert", "T", ("K", "L"), (["3", "x"],)), Code.FAILED_PRECONDITION),
        (Write("update", "T", ("K", "L", "N"), (["1", "x", None],)), Code.FAILED_PRECONDITION),
        (Write("insert", "T", ("L", "N"), (["x", "0"],)), Code.FAILED_PRECONDITION),
        (Write("insert", "Nope", ("K",), (["1"],)), Code.NOT_FOUND),
        (Write("insert", "T", ("K", "Nope"), (["1", "1"],)), Code.NOT_FOUND),
        (Write("insert", "T", ("K", "L"), (["1"],)), Code.INVALID_ARGUMENT),
        (Write("insert", "T", ("K", "L", "l"), (["1", "x", "x"],)), Code.INVALID_ARGUMENT),
        (Delete("T", KeySet(keys=(["1"],))), Code.FAILED_PRECONDITION),
        (Delete("T", KeySet(keys=(["1", "x", "y"],))), Code.FAILED_PRECONDITION),
    ],
)
def test_refusals(mutation: Mutation, code: Code) -> None:
    with pytest.raises(SpannerError) as caught:
        Rig().apply(mutation)

    assert caught.value.code is code


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
    rig = Rig()
    writes = rig.apply(
        *(delete(key) if kind == "delete" else write(kind, key, a) for kind, key, a in steps)
    )
    state = {key: rig.rows["t"].current(key) for _, key in writes.places}
    for change in writes.changes():
        assert state[change.key] == change.old
        state[change.key] = change.new

    assert state == {key: writes.row("t", key) for _, key in writes.places}
