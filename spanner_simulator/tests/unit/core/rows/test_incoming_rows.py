from __future__ import annotations

import pytest

from spanner_simulator.core.rows.mutations import COMMIT_TIMESTAMP
from spanner_simulator.core.rows.table_rules import build_rules
from spanner_simulator.core.schema.statements import Check, ColumnDefinition
from spanner_simulator.core.values import ValueType
from spanner_simulator.errors import Code, SpannerError
from unit.core.rows.conftest import column, write


@pytest.fixture
def rules(shop):
    shop.table(
        "T",
        [
            "K INT64",
            "N INT64 NOT NULL",
            column("D INT64", default="7"),
            column("G INT64", generated="N + 1", is_stored=True),
            column("W TIMESTAMP", default="now"),
            "S STRING",
            column("C TIMESTAMP", commit_timestamp=True),
            "P TIMESTAMP",
            "B BYTES",
            ColumnDefinition("L", ValueType("ARRAY", ValueType("STRING"))),
        ],
        "K",
        checks=(Check("small", "N > -10"),),
    )
    shop.table("R", ["K STRING NOT NULL"], "K")
    shop.table("X", [column("K INT64", generated="A + 1"), "A INT64", "V INT64"], "K")
    shop.table("Y", [column("K INT64", default="3"), "V INT64"], "K")
    shop.follow()
    return shop


def test_a_new_row_is_made_whole(rules) -> None:
    rules.apply(write("insert", "T", "K n", ["1", "4"]))
    assert rules.rows("T") == [[1, 4, 7, 5, rules.now_us * 1000, None, None, None, None, None]]


def test_a_check_holds_what_is_left_of_several_writes_to_a_row(rules) -> None:
    rules.apply(
        write("insert", "T", "K N", ["1", "-50"]),
        write("update", "T", "K N", ["1", "-60"], ["1", "3"]),
    )
    assert [row[1] for row in rules.rows("T")] == [3]


def test_a_given_null_is_not_the_default_and_an_update_computes_only_what_is_generated(
    rules,
) -> None:
    rules.apply(write("insert", "T", "K N D W", ["1", "4", None, None]))
    rules.apply(write("insert_or_update", "T", "K N", ["1", "8"]))
    assert rules.rows("T")[0][:5] == [1, 8, None, 9, None]


def test_an_insert_or_update_names_all_that_must_not_be_null_even_if_the_row_exists(rules) -> None:
    rules.apply(write("insert", "T", "K N", ["1", "4"]))
    with pytest.raises(SpannerError, match="non-null value for NOT NULL column: N"):
        rules.apply(write("insert_or_update", "T", "K D", ["1", "5"]))
    rules.apply(write("update", "T", "K D", ["1", "5"]))


def test_keys_may_be_generated_or_have_defaults(rules) -> None:
    rules.apply(write("insert", "X", "A V", ["1", "5"]), write("insert", "Y", "V", ["5"]))
    rules.apply(write("update", "X", "K V", ["2", "6"]))
    assert rules.rows("X") == [[2, 1, 6]]
    assert rules.rows("Y") == [[3, 5]]


T, R, X = (
    lambda names, *values, table=table, kind="insert": write(kind, table, names, list(values))
    for table in "TRX"
)
REFUSALS = [
    (T("K", "1"), "FAILED", "A new row in table T does not specify a non-null value"),
    (R(""), "FAILED", "A new row in table R does not specify a non-null value"),
    (R("", kind="update"), "FAILED", "Cannot specify a null value for column: K in table: R"),
    (T("K N", "1", None), "FAILED", "Cannot specify a null value for column: T.N in table: T"),
    (T("K N G", "1", "1", "2"), "FAILED", "Cannot write into generated column `T.G`."),
    (X("K V", "1", "1"), "FAILED", "Cannot write into generated column `X.K`."),
    (T("K N n", "1", "1", "2"), "INVALID_ARGUMENT", "Multiple values for column N."),
    (T("K N", "1"), "INVALID_ARGUMENT", "column and value size mismatch: Found: 2"),
    (T("K Q", "1", "1"), "NOT_FOUND", "Column not found in table T: Q"),
    (T("K N", "1", "-10"), "OUT_OF_RANGE", "constraint `T`.`small` is violated for key (1)"),
    (T("K N S", "1", "1", "x" * 2_621_441), "FAILED", "T.S, size: 2621441, limit: 2621440."),
    (T("K N B", "1", "1", "AAAA" * 3_500_000), "FAILED", "T.B, size: 10500000, limit: 10485760."),
    (T("K N L", "1", "1", ["x" * 2_000_000] * 6), "FAILED", "size: 12000000, limit: 10485760."),
    (T("K N L", "1", "1", ["x" * 2_621_441]), "FAILED", "T.L, size: 2621441, limit: 2621440."),
    (R("K", "k" * 9000), "INVALID_ARGUMENT", "bytes for key of table R is 9000 which"),
    (T("K N P", "1", "1", COMMIT_TIMESTAMP), "FAILED", "because the allow_commit_timestamp"),
    (T("K N C", "1", "1", "2124-01-01T00:00:00Z"), "FAILED", "in the future, found: 2124-01-01T00"),
]


@pytest.mark.parametrize(("mutation", "code", "part"), REFUSALS, ids=lambda one: str(one)[:30])
def test_refusals(rules, mutation, code: str, part: str) -> None:
    with pytest.raises(SpannerError) as caught:
        rules.apply(mutation)
    assert part in caught.value.message
    assert caught.value.code is Code[code.replace("FAILED", "FAILED_PRECONDITION")]
    assert rules.changes() == []


def test_a_generated_column_may_not_be_null_where_it_must_not(shop) -> None:
    shop.table("T", ["K INT64", "A INT64", column("G INT64 NOT NULL", generated="A + 1")], "K")
    shop.follow()
    with pytest.raises(SpannerError, match=r"null value for column: T\.G in table: T"):
        shop.apply(write("insert", "T", "K", ["1"]))


def test_a_timestamp_of_the_past_may_be_written_as_commit_timestamp(rules) -> None:
    rules.apply(write("insert", "T", "K N C", ["1", "1", "1970-01-01T00:00:00Z"]))
    assert rules.rows("T")[0][6] == 0


def test_generated_columns_are_in_an_order_in_which_they_can_be_computed(shop) -> None:
    shop.table(
        "T",
        [
            column("G INT64", generated="H + 1"),
            column("H INT64", generated="k + 1"),
            "K INT64",
            column("Z INT64", generated="G + 1"),
        ],
        "K",
    )
    assert [one.name for one in build_rules(shop.catalogue)["t"].generated] == ["H", "G", "Z"]
