"""Columns of a table, read from its change records' schemas, and reports of an audit."""

from __future__ import annotations

import copy

import pytest

from tidegate.producer.translation.table_registrar import TableRegistrar
from tidegate.schemas.change_schema import value_schema
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.tables import Column, ColumnType, TableSchema
from tidegate.schemas.topics import TopicNames
from tidegate.spark_consumer.core.proof import (
    AuditReport,
    Fault,
    Findings,
    Mismatch,
    Verdict,
    html_table,
)
from tidegate.spark_consumer.core.topic_schemas import full_name, reader_schema, row_columns
from tidegate.spark_consumer.errors import AmbiguousNames

NUMBER = ColumnType.from_spanner_type("INT64")

TEXT = ColumnType.from_spanner_type("STRING(MAX)")


def value_schema_with(*columns, kind=TEXT):
    """A value value_schema_with of a table with these columns behind its key."""
    others = [Column(name, kind, n) for n, name in enumerate(columns, 2)]
    return value_schema("bank.t", TableSchema("t", (Column("id", TEXT, 1, 1), *others)))


def test_a_reader_schema_has_the_columns_that_only_earlier_versions_have():
    assert row_columns(value_schema_with("b", "a")) == ("id", "b", "a")
    newest = [value_schema_with("a"), value_schema_with("a", "b")]
    assert reader_schema(newest) == newest[-1]
    versions = [
        value_schema_with("a", "b", "c", kind=NUMBER),
        value_schema_with("b", "c"),
        value_schema_with("c", "d"),
    ]
    before = copy.deepcopy(versions)
    reader = reader_schema(versions)
    assert row_columns(reader) == ("id", "c", "d", "b", "a")
    assert reader["fields"][1]["type"][1]["fields"][3:] == [
        {"name": "b", "type": ["null", "string"], "default": None},
        {"name": "a", "type": ["null", "long"], "default": None},
    ]
    assert full_name(reader) == full_name(versions[-1])
    assert versions == before
    for other in ({"type": "string"}, {"name": "r", "fields": [{"name": "x", "type": "int"}]}):
        with pytest.raises(SchemaError, match="new_values"):
            row_columns(other)


@pytest.mark.parametrize(
    "versions", [[("Name",), ("Name", "x", "name")], [("Name",), ("name",)], [("a", "ID")]]
)
def test_columns_that_differ_in_case_only_are_refused_by_name(versions):
    """Earlier producers made two fields of a column that came back in another case."""
    schemas = [
        value_schema("bank.t", TableSchema("t", (Column("id", TEXT, 1, 1),))) for _ in versions
    ]
    for one, names in zip(schemas, versions, strict=True):
        row = one["fields"][1]["type"][1]
        row["fields"] += [{**row["fields"][0], "name": name} for name in names]
    with pytest.raises(AmbiguousNames, match="differ in case only") as caught:
        reader_schema(schemas)
    names = {name for some in versions for name in some if name.lower() in {"name", "id"}}
    assert set(caught.value.fields["columns"]) == names | ({"id"} if "ID" in names else set())
    assert caught.value.exit_code == 2
    # A producer of this version makes one field of them, under another prefix.
    registrar = TableRegistrar(TopicNames("other"), InMemorySchemaRegistry())
    for some in versions:
        columns = [Column(name, TEXT, n) for n, name in enumerate(some, 2) if name != "ID"]
        shown = columns[-1:] if {"Name", "name"} <= set(some) else columns
        value = registrar.register(TableSchema("t", (Column("id", TEXT, 1, 1), *shown))).value
    assert len({name.lower() for name in row_columns(reader_schema([value.schema]))}) == len(
        row_columns(value.schema)
    )


# ---------------------------------------------------------------- reports of an audit
NOTHING = Findings({}, (), 0)


def report(**named):
    findings = {"stream_partitions": NOTHING, "transactions": NOTHING, "releases": NOTHING}
    return AuditReport(
        release=3,
        through_us=40,
        complete_from_us=None,
        changes=7,
        late_changes=0,
        **{**findings, "tables": NOTHING, **named},
    )


def test_a_report_without_a_fault_is_proved_whatever_was_not_judged():
    found = report(stream_partitions=Findings({Verdict.OPEN: 2, Verdict.PROVED: 1}, (), 0))
    assert found.is_proved
    content = found.content()
    assert content["proved"] is True
    assert content["stream_partitions"] == {"proved": 1, "mismatched": 0, "open": 2}
    assert content["transactions"] == {"proved": 0, "mismatched": 0}
    assert (content["mismatches"], content["mismatches_not_listed"]) == ([], 0)
    assert "<caption>proved</caption>" in found._repr_html_()


def test_a_fault_of_any_comparison_is_no_proof_and_is_counted_if_it_is_not_listed():
    one = Mismatch("release", {"release": 1}, Fault.NOT_DENSE, {"rows": 2}, {"found": 1})
    text = "ordinals are not 0, 1, 2, …"
    listed = {"what": "release", "release": 1, "fault": text}
    for name in ("tables", "stream_partitions", "transactions", "releases"):
        found = report(**{name: Findings({Verdict.MISMATCHED: 3}, (one,), 3)})
        assert not found.is_proved
        content = found.content()
        assert content["mismatches_not_listed"] == 2
        assert content["mismatches"] == [listed | {"expected": {"rows": 2}, "found": {"found": 1}}]
    shown = found._repr_html_()
    assert "<caption>NOT proved" in shown
    assert f"what: release, release: 1, fault: {text}" in shown


def test_a_table_has_its_head_its_rows_and_its_title():
    assert html_table(("figure", "value"), [("lag_s", 1.26), ("gaps", [])], title="<a>") == (
        "<table><caption>&lt;a&gt;</caption>"
        "<thead><tr><th>figure</th><th>value</th></tr></thead>"
        "<tbody><tr><td>lag_s</td><td>1.3</td></tr><tr><td>gaps</td><td>none</td></tr></tbody>"
        "</table>"
    )


def test_what_is_in_a_value_is_shown_line_by_line_and_never_taken_for_markup():
    cells = [(None, {"<b>": ["x&y", 2], "none": {}}, ("<i>",), 0)]

    assert html_table((), cells).split("<tbody>")[1] == (
        "<tr><td>-</td><td>&lt;b&gt;: x&amp;y<br>2<br>none: none</td><td>&lt;i&gt;</td><td>0</td>"
        "</tr></tbody></table>"
    )
