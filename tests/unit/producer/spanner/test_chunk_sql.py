"""The query of a chunk: every row once in the table's order, wherever NULL stands in it."""

import datetime
import itertools
import uuid
from datetime import UTC
from decimal import Decimal

import pytest
from google.cloud.spanner_v1.types import ExecuteSqlRequest, TypeCode

from spanner_simulator import Simulator, SimulatorConfig
from tidegate.producer.description import GOOGLE_SQL, POSTGRESQL
from tidegate.producer.spanner.catalogue import SpannerCatalogue
from tidegate.producer.spanner.channel import SpannerChannels
from tidegate.producer.spanner.chunk_sql import KeyOrder, KeyPart, chunk_query, unordered_key
from tidegate.producer.spanner.table_rows import _plain
from tidegate.schemas.tables import Column, ColumnType, TableSchema

NUMBER, TEXT = ColumnType("INT64"), ColumnType("STRING")
TABLE = TableSchema(
    "Sales.Items",
    (Column("Id", NUMBER, 2, 2), Column("Shop", TEXT, 1, 1), Column("Note", TEXT, 3)),
)


def query(dialect, *parts, after=None, where="Id > 5", rows=7):
    order = KeyOrder(dialect, parts)
    return chunk_query(TABLE, order, ["Note", "Id"], after=after, where=where, rows=rows)


SHOP, ID = KeyPart("Shop", is_nullable=False), KeyPart("Id", is_descending=True)


def test_the_first_chunk_has_the_condition_alone_in_a_line_that_a_comment_may_end():
    found = query(GOOGLE_SQL, SHOP, ID, where="Id > 5 -- large")

    assert found.sql == (
        "SELECT `Note`, `Id` FROM `Sales`.`Items` WHERE (Id > 5 -- large\n) "
        "ORDER BY `Shop`, `Id` DESC LIMIT 7"
    )
    assert found.parameters == {}


GOOGLE_BEHIND = (
    "(`Shop` >= @after1 AND ((`Shop` > @after1) OR "
    "(`Shop` = @after1 AND (`Id` < @after2 OR `Id` IS NULL))))"
)


@pytest.mark.parametrize(
    ("dialect", "expected", "names"),
    [
        (
            GOOGLE_SQL,
            GOOGLE_BEHIND,
            ["after1", "after2"],
        ),
        (
            POSTGRESQL,
            '("Shop" >= $1 AND (("Shop" > $1) OR ("Shop" = $1 AND "Id" < $2)))',
            ["p1", "p2"],
        ),
    ],
)
def test_a_later_chunk_is_behind_a_key(dialect, expected, names):
    found = query(dialect, SHOP, ID, after=("s", "7"))

    assert f" WHERE {expected} AND (Id > 5\n) " in found.sql
    assert found.parameters == dict(zip(names, [("STRING", "s"), ("INT64", "7")], strict=True))


@pytest.mark.parametrize(
    ("dialect", "expected"),
    [
        (GOOGLE_SQL, "((`Id` IS NOT NULL) OR (`Id` IS NULL AND `Shop` > @after1))"),
        (POSTGRESQL, '("Id" IS NULL AND (("Id" IS NULL AND "Shop" > $1)))'),
    ],
)
def test_null_is_no_parameter_and_stands_where_the_dialect_puts_it(dialect, expected):
    found = query(dialect, KeyPart("Id"), SHOP, after=(None, "s"))

    assert f" WHERE {expected} AND (" in found.sql
    assert list(found.parameters.values()) == [("STRING", "s")]


def test_behind_a_last_null_there_is_nothing():
    assert " WHERE (FALSE) AND (" in query(GOOGLE_SQL, ID, after=(None,)).sql


def test_a_table_without_a_key_is_not_sorted():
    assert query(GOOGLE_SQL).sql.endswith(" WHERE (Id > 5\n) LIMIT 7")


@pytest.mark.parametrize(
    ("kind", "is_ordered"),
    [
        (NUMBER, True), (ColumnType("UUID"), True), (ColumnType("FLOAT64"), False),
        (ColumnType("NUMERIC"), True), (ColumnType("NUMERIC", None, "PG_NUMERIC"), False),
        (ColumnType("ENUM"), False),
    ],
)  # fmt: skip
def test_keys_whose_values_do_not_compare_as_they_are_sorted_are_named(kind, is_ordered):
    wrong = Column("x", kind, 2, 2)
    table = TableSchema(
        "t", (Column("a", TEXT, 1, 1), wrong, Column("f", ColumnType("FLOAT64"), 3))
    )

    assert unordered_key(table) == (None if is_ordered else wrong)


# ---------------------------------------------------------------- against a database

VALUES = (None, "1", "2", "3")
DIRECTIONS = list(itertools.product((False, True), repeat=2))


KINDS = {
    GOOGLE_SQL: "CREATE TABLE Kinds (B BOOL, Y BYTES(MAX), D DATE, T TIMESTAMP, S STRING(MAX), "
    "U UUID, N NUMERIC) PRIMARY KEY (B DESC, Y, D, T, S, U, N)",
    POSTGRESQL: 'CREATE TABLE "Kinds" (b bool, y bytea, d date, t timestamptz, s varchar, '
    "u uuid, PRIMARY KEY (b, y, d, t, s, u))",
}
_FIRST = (True, "AP8=", datetime.date(2024, 5, 1), datetime.datetime(2024, 5, 1, tzinfo=UTC),
          "it's", uuid.UUID(int=7), Decimal("1.5"))  # fmt: skip
_SECOND = (False, "AQ==", datetime.date(2024, 5, 2), datetime.datetime(2024, 5, 2, tzinfo=UTC),
           "z", uuid.UUID(int=8), Decimal(10))  # fmt: skip


def kind_rows(width):
    """Return a row, and one for each column that differs in it alone."""
    rows = [(*_FIRST[:n], *_SECOND[n : n + 1], *_FIRST[n + 1 :]) for n in range(width)]
    return [one[:width] for one in (_FIRST, *rows)]


PG_TABLE = 'CREATE TABLE "T" (id bigint PRIMARY KEY, a bigint, b bigint)'


def ddl(is_descending):
    a, b = ("DESC" if one else "ASC" for one in is_descending)
    return f"CREATE TABLE {name_of(is_descending)} (a INT64, b INT64) PRIMARY KEY (a {a}, b {b})"


def name_of(is_descending):
    return "T" + "".join("01"[one] for one in is_descending)


@pytest.fixture(scope="module")
def databases():
    """By dialect a database whose tables have keys, or columns, that may be NULL."""
    rows = list(itertools.product(VALUES, repeat=2))
    with Simulator(SimulatorConfig()) as simulator:
        simulator.create_database("gs", ddl=[KINDS[GOOGLE_SQL], *(ddl(one) for one in DIRECTIONS)])
        simulator.create_database("pg", ddl=[PG_TABLE, KINDS[POSTGRESQL]], dialect="POSTGRESQL")
        instance = simulator.client().instance("test-instance")
        with instance.database("gs").batch() as batch:
            batch.insert("Kinds", list("BYDTSUN"), kind_rows(7))
            for one in DIRECTIONS:
                batch.insert(name_of(one), ("a", "b"), rows)
        with instance.database("pg").batch() as batch:
            batch.insert("T", ("id", "a", "b"), [(n, *row) for n, row in enumerate(rows)])
            batch.insert("Kinds", list("bydtsu"), kind_rows(6))
        opened = {
            dialect: SpannerChannels(
                database=f"projects/test-project/instances/test-instance/databases/{name}",
                emulator_host=simulator.grpc_address,
            )
            for dialect, name in ((GOOGLE_SQL, "gs"), (POSTGRESQL, "pg"))
        }
        yield opened
        for one in opened.values():
            one.close()


def rows_of(channels, found):
    request = ExecuteSqlRequest.pb()(sql=found.sql)
    request.transaction.single_use.read_only.strong = True
    for name, (code, value) in found.parameters.items():
        request.params[name] = value
        request.param_types[name].code = TypeCode[code]
    result = channels.execute_sql(request, timeout_s=30)
    return [tuple(_plain(one.SerializeToString()) for one in row.values) for row in result.rows]


def pages(chunk):
    """Yield all rows, one in each chunk; without an end if a chunk begins before its place."""
    after = None
    while page := chunk(after, 1):
        yield from page
        after = page[-1]


@pytest.mark.parametrize("is_descending", DIRECTIONS)
@pytest.mark.parametrize("dialect", [GOOGLE_SQL, POSTGRESQL])
def test_every_row_comes_once_in_order_wherever_null_stands(databases, dialect, is_descending):
    channels = databases[dialect]
    name = "T" if dialect == POSTGRESQL else name_of(is_descending)
    parts = (KeyPart("a", is_descending[0]), KeyPart("b", is_descending[1]))
    order = KeyOrder(dialect, parts)
    if dialect == GOOGLE_SQL:
        assert SpannerCatalogue(channels).key_order(name) == order
    table = TableSchema(name, (Column("a", NUMBER, 1, 1), Column("b", NUMBER, 2, 2)))

    def chunk(after, rows):
        found = chunk_query(
            table, order, ["a", "b"], after=after, where="a IS NULL OR b < 3 OR a = 3", rows=rows
        )
        return rows_of(channels, found)

    whole = chunk(None, 100)
    assert list(itertools.islice(pages(chunk), 20)) == whole
    assert len(whole) == 12


@pytest.mark.parametrize("dialect", [GOOGLE_SQL, POSTGRESQL])
def test_a_chunk_is_behind_a_key_of_any_type_that_is_taken(databases, dialect):
    channels = databases[dialect]
    catalogue = SpannerCatalogue(channels)
    table, order = catalogue.table("Kinds", stream=""), catalogue.key_order("Kinds")
    columns = [one.name for one in table.columns]

    def chunk(after, rows):
        found = chunk_query(table, order, columns, after=after, where="TRUE", rows=rows)
        return rows_of(channels, found)

    whole = chunk(None, 100)
    assert list(itertools.islice(pages(chunk), 20)) == whole
    assert len(whole) == len(columns) + 1


def test_of_a_postgresql_key_no_column_may_be_null(databases):
    order = SpannerCatalogue(databases[POSTGRESQL]).key_order("T")

    assert order == KeyOrder(POSTGRESQL, (KeyPart("id", is_nullable=False),))
