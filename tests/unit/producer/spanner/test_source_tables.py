"""Tables with what change streams watch of them, joined from the catalogue's answers."""

from tidegate.producer.description import GOOGLE_SQL, StreamDescription
from tidegate.producer.source_objects import SourceField
from tidegate.producer.spanner.source_tables import source_tables
from tidegate.schemas.tables import Column, ColumnType, TableSchema

INT64 = ColumnType("INT64")


def table(name, *, watched=("a", "b")):
    columns = (
        Column("a", INT64, 1, key_position=1, is_watched="a" in watched),
        Column("b", ColumnType("ARRAY", INT64), 2, is_watched="b" in watched),
        Column("c", ColumnType("NUMERIC", None, "PG_NUMERIC"), 3, is_watched="c" in watched),
    )
    return TableSchema(name, columns)


def stream(name, *tables):
    return StreamDescription(
        name=name, dialect=GOOGLE_SQL, exists=True, others=(), watches_all=False, options={},
        tables=tables,
    )  # fmt: skip


def test_each_column_names_the_streams_that_capture_it():
    found = source_tables(
        [table("u"), table("t")],
        {("t", "b"), ("u", "c")},
        [stream("S", table("t")), stream("R", table("t", watched=("a",)))],
    )
    assert [(one.name, one.watched_by) for one in found] == [("t", ("S", "R")), ("u", ())]
    assert found[0].fields == (
        SourceField("a", "INT64", nullable=False, key_position=1, watched_by=("S", "R")),
        SourceField("b", "ARRAY<INT64>", nullable=True, watched_by=("S",)),
        SourceField("c", "PG_NUMERIC", nullable=False),
    )
    assert [one.nullable for one in found[1].fields] == [False, False, True]


def test_a_notation_that_is_not_known_is_shown_as_it_is():
    notations = ("MAP<STRING(MAX), INT64>", "ARRAY<VECTOR<3>>", "ARRAY<FLOAT32>(vector_length=>3)")
    columns = tuple(
        Column(f"c{n}", ColumnType.from_spanner_type(text), n, key_position=1 if n == 1 else None)
        for n, text in enumerate(notations, 1)
    )
    (found,) = source_tables([TableSchema("t", columns)], set(), [])
    assert [one.type for one in found.fields] == [*notations[:2], "ARRAY<FLOAT32>"]
