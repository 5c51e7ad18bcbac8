"""Which streams can be read, and the key of a source's object."""

from dataclasses import replace

import pytest

from tidegate.producer.description import (
    GOOGLE_SQL,
    POSTGRESQL,
    SourceField,
    SourceObject,
    StreamDescription,
    check_start,
    check_stream,
    retention_ns,
)
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.tables import Column, ColumnType, TableSchema

INT64 = ColumnType("INT64")
TABLE = TableSchema("t", (Column("id", INT64, 1, key_position=1),))
GOOD = StreamDescription(
    name="S", dialect=GOOGLE_SQL, exists=True, others=("R", "S"), watches_all=False, options={},
    tables=(TABLE,),
)  # fmt: skip
HOUR_NS = 3_600_000_000_000
UNWATCHED = Column("x", ColumnType("A.B"), 2, is_watched=False)


def test_what_can_be_read():
    for changes in (
        {}, {"watches_all": True, "tables": ()}, {"options": {"per_placement_tvf": "false"}},
        {"options": {"partition_mode": "IMMUTABLE_KEY_RANGE", "value_capture_type": "NEW_ROW"}},
        # A column that the stream does not watch may have any type.
        {"tables": (replace(TABLE, columns=(*TABLE.columns, UNWATCHED)),)},
    ):  # fmt: skip
        check_stream(replace(GOOD, **changes))


@pytest.mark.rule("spanner-placement")
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dialect": "ORACLE"}, ["dialect", "ORACLE", "use a database of the dialect"]),
        ({"exists": False}, ["S", "it has: R, S", "set one of these, or create it"]),
        ({"exists": False, "others": ()}, ["it has: none"]),
        ({"options": {"partition_mode": "MOVING"}}, ["partition_mode", "MOVING", "MUTABLE"]),
        ({"options": {"per_placement_tvf": "true"}}, ["per_placement_tvf"]),
        ({"options": {"value_capture_type": "EVERYTHING"}}, ["value_capture_type"]),
        ({"tables": ()}, ["watches no table"]),
        ({"tables": (TableSchema("k", (Column("a", INT64, 1),)),)}, ["table k", "primary key"]),
        (
            {"tables": (TableSchema("u", (*TABLE.columns, Column("x", ColumnType("A.B"), 2))),)},
            ["table u", "A.B", "do not watch this table"],
        ),
        (
            {"options": {"partition_mode": "MOVING"}, "tables": ()},
            ["partition_mode", "watches no table"],
        ),
    ],
)
def test_what_cannot_be_read_is_named(changes, words):
    with pytest.raises(ConfigError) as caught:
        check_stream(replace(GOOD, **changes))
    head, *faults = str(caught.value).splitlines()
    assert head == "the change stream cannot be read:"
    assert len(faults) == 1 + (changes.keys() == {"options", "tables"})
    assert all(word in str(caught.value) for word in words)
    # Only a fault of a table is fixed by watching others.
    assert ("ORACLE" in words) <= ("watch" not in str(caught.value))


@pytest.mark.parametrize(
    "tables",
    [
        (),
        (TableSchema("no_key", (Column("a", INT64, 1),)), TABLE),
        (replace(TABLE, columns=(*TABLE.columns, Column("größe", INT64, 2))),),
        (replace(TABLE, columns=(*TABLE.columns, Column("x", ColumnType("A.B"), 2))),),
    ],
)
def test_tables_that_changed_later_do_not_keep_a_stream_from_being_read(tables):
    found = replace(GOOD, tables=tables)
    with pytest.raises(ConfigError):
        check_stream(found)
    check_stream(found, has_begun=True)
    with pytest.raises(ConfigError, match="per_placement_tvf"):
        check_stream(replace(found, options={"per_placement_tvf": "true"}), has_begun=True)


def test_filters_are_what_the_stream_leaves_out_and_retention_has_its_units():
    options = {"exclude_insert": "true", "exclude_delete": "false", "exclude_ttl_deletes": "TRUE"}
    filters = replace(GOOD, options=options).filters
    assert filters == ("exclude_insert=true", "exclude_ttl_deletes=true")
    assert GOOD.value_capture_type == "OLD_AND_NEW_VALUES"
    for text, hours in (("36h", 36), ("1d", 24), ("30d", 720), ("60m", 1), ("3600s", 1)):
        assert retention_ns(text) == hours * HOUR_NS
    assert [retention_ns(text) for text in ("", "1w", "-1h")] == [None] * 3
    assert GOOD.retention_us == 7 * 24 * HOUR_NS // 1_000
    assert replace(GOOD, options={"retention_period": "36h"}).retention_us == 36 * HOUR_NS // 1_000


@pytest.mark.rule("spanner-start-in-retention")
def test_a_start_outside_of_retention_is_refused_with_the_bound():
    kept = replace(GOOD, options={"retention_period": "1h"})
    check_start(kept, start_ns=HOUR_NS, now_ns=2 * HOUR_NS)
    check_start(GOOD, start_ns=0, now_ns=2 * HOUR_NS)
    with pytest.raises(ConfigError, match="1970-01-01T01:00:00Z"):
        check_start(kept, start_ns=HOUR_NS - 1, now_ns=2 * HOUR_NS)
    for ahead_s in (0, 60):
        check_start(GOOD, start_ns=HOUR_NS + ahead_s * 10**9, now_ns=HOUR_NS)
    with pytest.raises(ConfigError, match=r"later than now.*1970-01-01T01:00:00Z"):
        check_start(GOOD, start_ns=HOUR_NS + 60 * 10**9 + 1, now_ns=HOUR_NS)


@pytest.mark.parametrize(
    ("dialect", "name", "quoted", "clause"),
    [
        (GOOGLE_SQL, "Feed", "Feed", "OPTIONS"),
        (POSTGRESQL, "feed", "feed", "WITH"),
        (POSTGRESQL, "Feed", '"Feed"', "WITH"),
    ],
)
def test_the_ddl_of_a_fix_is_in_the_databases_dialect(dialect, name, quoted, clause):
    stream = replace(GOOD, dialect=dialect, name=name)
    (missing,) = replace(stream, exists=False).faults()
    assert missing.endswith(f"create it: CREATE CHANGE STREAM {quoted} FOR ALL")
    (empty,) = replace(stream, watches_all=False, tables=()).faults()
    assert empty.endswith(f"type ALTER CHANGE STREAM {quoted} SET FOR …")
    (mutable,) = replace(stream, options={"partition_mode": "MOVING"}).faults()
    modes = ("IMMUTABLE_KEY_RANGE", "MUTABLE_KEY_RANGE")
    either = " or ".join(f"{clause} (partition_mode = '{mode}')" for mode in modes)
    assert mutable.endswith(f"create a stream with {either}")


def test_the_key_of_an_object_is_in_the_order_of_its_positions():
    fields = (
        SourceField("a", "LONG", nullable=False, key_position=2),
        SourceField("b", "LONG", nullable=True),
        SourceField("c", "LONG", nullable=False, key_position=1),
    )
    assert SourceObject("t", fields).key == ("c", "a")
    assert SourceObject("t", fields[1:2]).key == ()
