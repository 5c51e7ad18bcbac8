from __future__ import annotations

import pytest

from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.ddl import parse_ddl
from spanner_simulator.core.schema.expression_names import column_names
from spanner_simulator.core.schema.schema_objects import ChangeStream, Table, duration_us
from spanner_simulator.core.schema.statement_rules import apply_statement
from spanner_simulator.core.schema.statements import OptionValue, Watch
from spanner_simulator.errors import Code, SpannerError


@pytest.fixture
def table() -> Table:
    catalogue = Catalogue()
    statement = "CREATE TABLE T (V INT64, K INT64, W INT64) PRIMARY KEY (K)"
    apply_statement(catalogue, parse_ddl(statement), now_us=1)
    return catalogue.table("t")


def stream(watch: Watch | None, *options: tuple[str, OptionValue]) -> ChangeStream:
    return ChangeStream("S", 1, watch, options)


@pytest.mark.parametrize(
    ("watch", "columns"),
    [
        (None, None),
        (Watch(everything=True), ("V", "W")),
        (Watch(tables=(("t", None),)), ("V", "W")),
        (Watch(tables=(("T", ("w",)),)), ("W",)),
        (Watch(tables=(("T", ()),)), ()),
        (Watch(tables=(("U", None),)), None),
    ],
)
def test_tracked_columns(
    table: Table, watch: Watch | None, columns: tuple[str, ...] | None
) -> None:
    assert stream(watch).tracked_columns(table) == columns


def test_options_have_defaults() -> None:
    plain = stream(None)
    tuned = stream(
        None,
        *(("value_capture_type", "NEW_ROW"), ("retention_period", "36h")),
        *(("exclude_delete", True), ("exclude_ttl_deletes", True), ("allow_txn_exclusion", True)),
        ("partition_mode", "MUTABLE_KEY_RANGE"),
    )
    assert [
        (one.capture_type, one.retention_us // 3_600_000_000, one.excluded_mod_types)
        for one in (plain, tuned)
    ] == [("OLD_AND_NEW_VALUES", 7 * 24, set()), ("NEW_ROW", 36, {"DELETE"})]
    assert [
        (one.excludes_ttl_deletes, one.allows_txn_exclusion, one.partition_mode)
        for one in (plain, tuned)
    ] == [(False, False, "IMMUTABLE_KEY_RANGE"), (True, True, "MUTABLE_KEY_RANGE")]


@pytest.mark.parametrize("text", ["abc", "", "1", "-1d", "1D", "1.5d", "٣d", "9" * 19 + "d"])
def test_a_malformed_duration_is_refused(text: str) -> None:
    with pytest.raises(SpannerError, match=rf"Invalid time duration format: {text}\.") as caught:
        duration_us(text)
    assert caught.value.code is Code.FAILED_PRECONDITION


def test_columns_are_found_in_any_case_and_named_as_written(table: Table) -> None:
    assert table.column("v").name == "V"
    assert table.key_names == ("K",)
    assert table.value_names == {"V", "W"}
    with pytest.raises(SpannerError, match="Column not found in table T: x"):
        table.column("x")


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("UPPER(Name) || `b`", {"name", "b"}),
        ("DATE '2024-01-01'", set()),
        ("CAST(a AS date)", {"a"}),
        ("DATE_ADD(a, INTERVAL 1 day)", {"a"}),
        ("'b' -- c", set()),
        ("EXTRACT(YEAR FROM Ts)", {"ts"}),
        ("EXTRACT(HOUR FROM Ts AT TIME ZONE Home)", {"ts", "home"}),
        ("DATE_TRUNC(Day, DAY)", {"day"}),
        ("TIMESTAMP_TRUNC(Ts, MONTH, 'UTC')", {"ts"}),
        ("DATE_TRUNC(d, WEEK(MONDAY))", {"d", "monday"}),
        ("DATE_DIFF(a, day, DAY)", {"a", "day"}),
        ("LAST_DAY(a, YEAR)", {"a"}),
        ("GREATEST(a, day)", {"a", "day"}),
        ("a + INTERVAL '1' DAY", {"a"}),
        ("j.name.first", {"j"}),
        ("T.j.name", {"j"}),
        ("T.a + `T`.b", {"a", "b"}),
        ("SAFE.LOG(a)", {"a"}),
        ("IF((a) > 1, (b), LENGTH(c))", {"a", "b", "c"}),
    ],
)
def test_columns_of_an_expression_over_a_row(expression: str, names: set[str]) -> None:
    assert column_names(expression, "GOOGLE_STANDARD_SQL", table="n.T") == names


def test_a_column_of_postgresql_may_have_its_table_before_it() -> None:
    text = "t.a > 0 OR \"A\" || b::text || 'c' = ''"
    assert column_names(text, "POSTGRESQL", table="t") == {"a", "b"}
