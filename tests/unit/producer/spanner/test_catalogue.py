"""The catalogue, joined from simple answers: streams, tables, and who watches what."""

import re
from dataclasses import replace
from types import SimpleNamespace

import grpc
import pytest
from google.cloud.spanner_v1.types import ResultSet

from tidegate.producer.errors import QueryRefused
from tidegate.producer.spanner.catalogue import SpannerCatalogue, TablesAt, source_tables
from tidegate.producer.spanner.chunk_sql import KeyOrder, KeyPart
from tidegate.schemas.avro_types import is_carried
from tidegate.schemas.tables import Column, ColumnType, TableSchema

COLUMNS = (
    "table_schema", "table_name", "column_name", "spanner_type", "ordinal_position", "is_generated"
)  # fmt: skip
KEYS = ("table_schema", "table_name", "column_name", "ordinal_position", "column_ordering",
        "is_nullable")  # fmt: skip
INT64, STRING = ColumnType("INT64"), ColumnType("STRING")
LEDGER = TableSchema(
    "ledger", (Column("x", INT64, 1, key_position=2), Column("y", STRING, 2, key_position=1))
)
NAMED = TableSchema("sales.orders", (Column("id", INT64, 1, key_position=1),))


@pytest.fixture
def views():
    """View to (column names, rows), as a database would hold them."""
    return {
        "database_options": (("option_name", "option_value"),
                             [("database_dialect", "GOOGLE_STANDARD_SQL")]),
        "change_streams": (("CHANGE_STREAM_NAME", "ALL"), [("All", True), ("Some", False),
                                                           ("Nothing", False)]),
        "change_stream_options": (("change_stream_name", "option_name", "option_value"),
                                  [("Some", "retention_period", "36h")]),
        "change_stream_tables": (("change_stream_name", "table_schema", "table_name",
                                  "all_columns"), [("Some", "", "ledger", True)]),
        "change_stream_columns": (("change_stream_name", "table_schema", "table_name",
                                   "column_name"), []),
        "tables": (("table_schema", "table_name", "table_type"),
                   [("", "ledger", "BASE TABLE"), ("", "v", "VIEW"),
                    ("sales", "orders", "BASE TABLE"), ("SPANNER_SYS", "s", "BASE TABLE")]),
        "columns": (COLUMNS, [("", "ledger", "y", "STRING(10)", "2", "NEVER"),
                              ("", "ledger", "x", "INT64", "1", "NEVER"),
                              ("", "v", "x", "INT64", "1", "NEVER"),
                              ("sales", "orders", "id", "INT64", "1", "NEVER"),
                              ("other", "orders", "id", "STRING(MAX)", "1", "NEVER"),
                              ("INFORMATION_SCHEMA", "TABLES", "T", "STRING(MAX)", "1", "NEVER")]),
        "index_columns": (KEYS, [("", "ledger", "x", "2", "DESC", "YES"),
                                 ("", "ledger", "y", "1", "ASC", "NO"),
                                 ("sales", "orders", "id", "1", "ASC", "NO"),
                                 ("", "ledger", "stored", None, None, "NO")]),
    }  # fmt: skip


@pytest.fixture
def catalogue(spanner, channels, views, wire):
    def answer(request, _context):
        view = re.search(r"information_schema\.(\w+)", request.sql)[1]
        names, rows = views[view]
        parameter, marker = ("p1", "$1") if "$1" in request.sql else ("name", "@name")
        wanted = dict(request.params).get(parameter)
        assert (marker in request.sql) == (wanted is not None)
        of = "table_name" if view in {"columns", "index_columns"} else "change_stream_name"
        if wanted is not None:
            rows = [row for row in rows if row[names.index(of)] == wanted]
        listed = re.match(r"SELECT (.*?) FROM", request.sql)[1]
        asked = names if listed == "*" else listed.split(", ")
        result = ResultSet.pb()()
        for name in asked:
            result.metadata.row_type.fields.add(name=name)
        for row in rows:
            result.rows.add(values=[wire.value(row[names.index(name)]) for name in asked])
        return result

    spanner.on_sql = answer
    return SpannerCatalogue(channels)


def test_a_stream_watches_every_table_some_or_none(catalogue):
    description = catalogue.describe("All")
    assert (description.exists, description.watches_all) == (True, True)
    assert description.tables == (LEDGER, NAMED)
    assert description.others == ("All", "Nothing", "Some")
    assert description.options == {}
    description = catalogue.describe("Some")
    assert not description.watches_all
    assert description.tables == (LEDGER,)
    assert description.options == {"retention_period": "36h"}
    assert catalogue.describe("Nothing").tables == ()
    missing = catalogue.describe("Missing")
    assert (missing.exists, missing.tables) == (False, ())


def test_a_database_that_names_no_dialect_is_googlesql(catalogue, views):
    views["database_options"][1].clear()
    assert catalogue.describe("All").dialect == "GOOGLE_STANDARD_SQL"


def test_an_unknown_dialect_is_asked_nothing_else(catalogue, views, spanner):
    views["database_options"][1][0] = ("database_dialect", "ORACLE")
    assert catalogue.describe("All").dialect == "ORACLE"
    assert sum(hasattr(request, "sql") for request in spanner.requests) == 1


def test_a_single_table_by_its_reported_name(catalogue, views):
    assert catalogue.table("ledger", stream="All") == LEDGER
    assert catalogue.table("sales.orders", stream="All") == NAMED
    assert catalogue.table("orders", stream="All") is None
    assert catalogue.table("nope", stream="All") is None
    # Columns that no change stream holds are left out.
    views["columns"][1].append(("", "ledger", "Tokens", "TOKENLIST", "3", "NEVER"))
    assert catalogue.describe("Some").tables == (LEDGER,)
    assert catalogue.table("ledger", stream="All") == LEDGER


@pytest.mark.rule("P7")
@pytest.mark.parametrize("read_ns", [None, 1_704_164_645_000_001_000])
def test_a_table_is_that_of_now_or_of_the_time_that_is_given(catalogue, spanner, read_ns):
    def assert_read_at(count, *views):
        asked = [
            request
            for request in spanner.requests
            if any(v in getattr(request, "sql", "") for v in views)
        ]
        assert len(asked) == count
        for one in asked:
            read_only = one.transaction.single_use.read_only
            assert read_only.strong == (read_ns is None)
            assert read_ns is None or read_only.read_timestamp.ToNanoseconds() == read_ns

    assert catalogue.table("ledger", stream="Some", read_ns=read_ns) == LEDGER
    assert_read_at(5, "change_stream", ".columns", "index_columns")
    spanner.requests.clear()
    # And the order of its rows.
    parts = (KeyPart("y", is_nullable=False), KeyPart("x", is_descending=True))
    order = catalogue.key_order("ledger", read_ns=read_ns)
    assert order == KeyOrder("GOOGLE_STANDARD_SQL", parts)
    assert_read_at(1, "index_columns")
    assert catalogue.key_order("sales.orders").parts == (KeyPart("id", is_nullable=False),)
    assert catalogue.key_order("orders").parts == ()


def watched(table):
    return {column.name: column.is_watched for column in table.columns}


@pytest.mark.parametrize("listed", ["b", ""])
def test_columns_that_a_stream_does_not_list_are_not_watched_but_its_key_is(
    catalogue, views, listed
):
    views["columns"][1].extend(
        ("", "ledger", name, "INT64", str(n), "NEVER") for n, name in enumerate("abc", 3)
    )
    views["change_stream_tables"][1][0] = ("Some", "", "ledger", False)
    views["change_stream_columns"][1].extend(("Some", "", "ledger", name) for name in listed)
    expected = {"x": True, "y": True, "a": False, "b": listed == "b", "c": False}
    (ledger,) = catalogue.describe("Some").tables
    assert watched(ledger) == expected
    assert watched(catalogue.table("ledger", stream="Some")) == expected
    assert all(watched(catalogue.table("ledger", stream="All")).values())


def test_generated_columns_are_not_watched_and_tables_name_what_is_left_out(catalogue, views):
    views["columns"][1].append(("", "ledger", "a", "INT64", "3", "ALWAYS"))
    views["columns"][1][0] = ("", "ledger", "y", "STRING(10)", "2", "ALWAYS")
    assert watched(catalogue.describe("All").tables[0]) == {"x": True, "y": True, "a": False}
    options = views["change_stream_options"][1]
    options += [("Some", "exclude_delete", "true"), ("Some", "exclude_insert", "false")]
    assert catalogue.describe("Some").tables[0].excludes == ("exclude_delete",)
    assert catalogue.table("ledger", stream="Some").excludes == ("exclude_delete",)
    assert catalogue.describe("All").tables[0].excludes == ()


@pytest.mark.parametrize("notation", ["<>", "ARRAY<VECTOR<FLOAT32, 3>>", "", None])
def test_a_type_of_an_unknown_notation_is_one_column_of_one_table(catalogue, views, notation):
    views["columns"][1].append(("", "ledger", "odd", notation, "3", "NEVER"))
    found = catalogue.describe("All").tables
    assert found == (replace(LEDGER, columns=found[0].columns), NAMED)
    assert found[0].columns[:2] == LEDGER.columns
    assert not is_carried(found[0].columns[2].type)
    assert catalogue.every_table() == found


def test_a_database_that_does_not_answer(catalogue, spanner):
    spanner.on_sql = lambda _request, context: context.abort(
        grpc.StatusCode.PERMISSION_DENIED, "no"
    )
    with pytest.raises(QueryRefused):
        catalogue.describe("All")


@pytest.fixture
def postgresql(views):
    """The same database in the other dialect, with names that need quotes."""
    stream = ("change_stream_name", "table_schema", "table_name")
    views.update({
        "database_options": (("option_name", "option_value"), [("database_dialect", "POSTGRESQL")]),
        "change_streams": (("change_stream_name", "all"), [("All", "YES"), ("some", "NO")]),
        "change_stream_options": (("change_stream_name", "option_name", "option_value"),
                                  [("some", "exclude_delete", "true")]),
        "change_stream_tables": ((*stream, "all_columns"),
                                 [("some", "public", "ledger", "YES"),
                                  ("some", "Sales", "Orders", "NO")]),
        "change_stream_columns": ((*stream, "column_name"), [("some", "Sales", "Orders", "B")]),
        "tables": (("table_schema", "table_name", "table_type"),
                   [("public", "ledger", "BASE TABLE"), ("public", "v", "VIEW"),
                    ("Sales", "Orders", "BASE TABLE"), ("Sales", "ledger", "BASE TABLE"),
                    ("spanner_sys", "s", "BASE TABLE"), ("pg_catalog", "c", "BASE TABLE"),
                    ("information_schema", "i", "BASE TABLE")]),
        "columns": (COLUMNS, [("public", "ledger", "y", "character varying(10)", "2", "NEVER"),
                              ("public", "ledger", "x", "bigint", "1", "NEVER"),
                              ("public", "ledger", "t", "spanner.tokenlist", "3", "ALWAYS"),
                              ("Sales", "Orders", "Id", "numeric", "1", "NEVER"),
                              ("Sales", "Orders", "A", "jsonb", "2", "NEVER"),
                              ("Sales", "Orders", "B", "bytea[]", "3", "NEVER"),
                              ("Sales", "Orders", "G", "text", "4", "ALWAYS"),
                              ("Sales", "ledger", "id", "uuid", "1", "NEVER"),
                              ("pg_catalog", "c", "x", "name", "1", "NEVER")]),
        "index_columns": (KEYS, [("public", "ledger", "y", "1"), ("public", "ledger", "x", "2"),
                                 ("Sales", "Orders", "Id", "1"), ("Sales", "ledger", "id", "1")]),
    })  # fmt: skip


ORDERS_ID = Column("Id", ColumnType("NUMERIC", annotation="PG_NUMERIC"), 1, key_position=1)


@pytest.mark.rule("spanner-types")
@pytest.mark.usefixtures("postgresql")
def test_postgresql_has_the_same_catalogue(catalogue, views):
    description = catalogue.describe("All")
    assert (description.dialect, description.watches_all) == ("POSTGRESQL", True)
    assert [table.name for table in description.tables] == [
        "Sales.Orders",
        "Sales.ledger",
        "ledger",
    ]
    assert description.tables[2] == LEDGER
    assert description.tables[0].columns == (
        ORDERS_ID,
        Column("A", ColumnType("JSON", annotation="PG_JSONB"), 2),
        Column("B", ColumnType("ARRAY", ColumnType("BYTES")), 3),
        Column("G", STRING, 4, is_watched=False),
    )
    # Tables by their reported names, which are compared as they are stored.
    assert catalogue.table("ledger", stream="All") == LEDGER
    assert catalogue.table("Sales.Orders", stream="All").columns[0] == ORDERS_ID
    assert catalogue.table("Sales.ledger", stream="All").columns[0].type == ColumnType("UUID")
    assert catalogue.table("orders", stream="All") is None
    missing = catalogue.describe("Some")
    assert (missing.exists, missing.others) == (False, ("All", "some"))
    # A type without a code is found by the checks.
    views["columns"][1].append(("public", "ledger", "p", "point", "9", "NEVER"))
    (fault,) = catalogue.describe("All").faults()
    assert "ledger" in fault
    assert "POINT" in fault


@pytest.mark.usefixtures("postgresql")
def test_a_postgresql_stream_for_some_tables_and_columns(catalogue):
    description = catalogue.describe("some")
    assert not description.watches_all
    assert description.filters == ("exclude_delete=true",)
    orders, ledger = description.tables
    assert watched(orders) == {"Id": True, "A": False, "B": True, "G": False}
    assert ledger.excludes == ("exclude_delete",)
    assert ledger.columns == LEDGER.columns


def test_a_notation_that_is_not_known_is_shown_as_it_is():
    notations = ("MAP<STRING(MAX), INT64>", "ARRAY<VECTOR<3>>", "ARRAY<FLOAT32>(vector_length=>3)")
    columns = tuple(
        Column(f"c{n}", ColumnType.from_spanner_type(text), n, key_position=1 if n == 1 else None)
        for n, text in enumerate(notations, 1)
    )
    (found,) = source_tables([TableSchema("t", columns)], set(), [])
    assert [one.type for one in found.fields] == [*notations[:2], "ARRAY<FLOAT32>"]


def test_each_table_is_asked_for_once_at_a_time(tasks):
    asked = []

    def table(name, **place):
        asked.append((name, *place.values()))
        return None if name == "gone" else f"{name} at {place['read_ns']}"

    tables = TablesAt(SimpleNamespace(table=table), stream="all", tasks=tasks)
    for _ in range(2):
        for name, read_ns, found in (("a", 1, "a at 1"), ("gone", 1, None)):
            assert tasks.run(lambda n=name, t=read_ns: tables.table(n, read_ns=t)) == found
    assert tasks.run(lambda: tables.table("a", read_ns=2)) == "a at 2"
    assert asked == [("a", "all", 1), ("gone", "all", 1), ("a", "all", 2)]
