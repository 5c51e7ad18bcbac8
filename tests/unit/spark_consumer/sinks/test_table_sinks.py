"""What sinks of tables have in common: schemas, clauses, layouts, names, merges, late events."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tests.datastream_worlds import run_world
from tests.topics import Topic
from tests.unit.spark_consumer.sinks.memory_files import MemoryFiles
from tidegate.schemas.errors import ConfigError, InvariantViolation, SchemaError
from tidegate.schemas.instants import format_rfc3339
from tidegate.schemas.source_order import SOURCE_ORDER, SOURCE_TIMESTAMP
from tidegate.spark_consumer.sinks.delta.catalog import named
from tidegate.spark_consumer.sinks.delta.changelog_reader import ChangelogReader
from tidegate.spark_consumer.sinks.delta.layout import TableLayout
from tidegate.spark_consumer.sinks.delta.side_tables import DeltaLateEvents, is_late
from tidegate.spark_consumer.sinks.delta.tables import SinkTables
from tidegate.spark_consumer.sinks.manifest import Manifest, write_manifest
from tidegate.spark_consumer.sinks.merge.by_key import key_merge, keyed_schema
from tidegate.spark_consumer.sinks.merge.history import DeltaHistorySink
from tidegate.spark_consumer.sinks.merge.mirror import merge_clauses
from tidegate.spark_consumer.sinks.merge.scope import mirror_schema
from tidegate.spark_consumer.sinks.merge.versions import HistoryColumns
from tidegate.spark_consumer.sinks.port import CollectedTable, MergingSink, TableVersion
from tidegate.spark_consumer.sinks.spark_types import as_nullable, change_type, lacks_columns
from tidegate.spark_consumer.sinks.sql import double_quoted, quoted, text_literal
from tidegate.spark_consumer.sinks.tables import for_each_table

ROOT = Path(__file__).resolve().parents[4]


# ---------------------------------------------------------------- schemas
def table(*, unwatched=(), dropped=(), **columns):
    """A table whose newest schema leaves columns out of the stream, or does not have them."""
    now = {name: kind for name, kind in columns.items() if name not in dropped}
    versions = {1: {"id": "INT64"} | columns, 2: {"id": "INT64"} | now}
    schemas = Topic("t", versions, ["id"], unwatched={2: unwatched}).topic_schemas()
    return SimpleNamespace(schemas=schemas, schema=change_type(schemas))


HISTORY = (HistoryColumns().schema, ["valid_from", "valid_to", "is_current"])
PREFIXED = (HistoryColumns("dbt_").schema, ["dbt_valid_from", "dbt_valid_to", "dbt_is_current"])
BY_KEY = (keyed_schema, ["row_state", "order_key", "column_updates"])


@pytest.mark.parametrize(
    ("schema_of", "ours", "name"),
    [
        *((*HISTORY, name) for name in ("valid_from", "Valid_To", "IS_CURRENT")),
        *((*PREFIXED, name) for name in ("dbt_valid_from", "DBT_VALID_TO")),
        *((*BY_KEY, name) for name in ("row_state", "Order_Key", "column_updates")),
    ],
)
def test_a_column_with_the_name_of_one_of_ours_is_refused(schema_of, ours, name):
    at = schema_of(table(at="TIMESTAMP", release="STRING(MAX)"))
    assert at.fieldNames() == [*ours, "id", "at", "release"]  # ours come before the row's
    with pytest.raises(ConfigError, match=rf"table='t', columns=\['{name}'\]") as raised:
        schema_of(table(**{name: "INT64"}))
    assert "columns_left_out" in (raised.value.hint or "")
    columns = {"a": "INT64", name: "INT64"}
    assert schema_of(table(**columns, unwatched=(name,))).fieldNames() == [*ours, "id", "a"]
    with pytest.raises(ConfigError):  # the topic has it still
        schema_of(table(**columns, dropped=(name,)))
    assert name in mirror_schema(table(**columns)).fieldNames()


def test_a_history_with_a_prefix_takes_any_other_column_and_refuses_before_it_is_written():
    columns = {"valid_from": "INT64", "is_current": "BOOL"}
    prefixed = HistoryColumns("dbt_").schema(table(**columns))
    assert prefixed.fieldNames() == [*PREFIXED[1], "id", *columns]
    sink = DeltaHistorySink(None, "/out", columns=HistoryColumns("dbt_"))
    catalogued = named(sink, MagicMock(), output=MemoryFiles())
    bad = table(dbt_valid_to="INT64").schemas
    for history in (sink, catalogued):
        history.admit([table(**columns).schemas])
        for _ in range(2):  # it is refused again and again
            with pytest.raises(ConfigError, match=r"columns=\['dbt_valid_to'\]") as raised:
                history.admit([table(**columns).schemas, bad])
    assert "history_prefix" in raised.value.hint
    # A sink that takes everything may have no such method.
    named(SimpleNamespace(name="changelog"), MagicMock(), output=MemoryFiles()).admit([bad])


@pytest.mark.parametrize(
    ("prefix", "in_table", "hint"),
    [("dbt_", "is_current", 'history_prefix = ""'), ("", "a_is_current", 'history_prefix = "a_"')],
)
def test_an_output_keeps_the_names_that_its_histories_were_begun_with(prefix, in_table, hint):
    columns = HistoryColumns(prefix)
    with pytest.raises(ConfigError, match=rf"column_in_table='{in_table}'") as raised:
        columns.require_same((in_table,), table="t")
    assert hint in raised.value.hint
    assert raised.value.exit_code == 2
    columns.require_same((columns.is_current,), table="t")


def schema(**fields):
    return StructType([StructField(name, kind, nullable=True) for name, kind in fields.items()])


def test_every_level_of_a_schema_becomes_nullable():
    inner = StructType([StructField("x", LongType(), nullable=False)])
    strict = StructType([StructField("a", ArrayType(inner, containsNull=False), nullable=False)])
    (field,) = as_nullable(strict)
    assert field.nullable
    assert field.dataType.containsNull
    assert field.dataType.elementType["x"].nullable


@pytest.mark.parametrize(
    ("have", "want", "is_missing"),
    [
        (schema(a=LongType()), schema(a=LongType()), False),
        (schema(A=LongType()), schema(a=LongType()), False),
        (schema(a=LongType(), b=LongType()), schema(a=LongType()), False),
        (schema(a=LongType()), schema(a=LongType(), b=LongType()), True),
        (schema(r=schema(a=LongType())), schema(r=schema(b=LongType())), True),
    ],
)
def test_missing_columns_are_found_at_every_level(have, want, is_missing):
    assert lacks_columns(have, want, table="t") is is_missing
    have, want = schema(r=schema(a=LongType())), schema(r=schema(a=StringType()))
    with pytest.raises(SchemaError, match=r"column='r\.a'.*bigint.*string"):
        lacks_columns(have, want, table="t")


# ---------------------------------------------------------------- clauses and names in SQL
def test_a_merge_patches_captured_columns_and_inserts_what_was_folded():
    clauses = merge_clauses(columns=["id", "a"], keys=["id"])
    assert clauses.same_key == "t.`id` <=> s.key.`id`"
    assert clauses.changed == {"`a`": "CASE WHEN s.captured_1 THEN s.value_1 ELSE t.`a` END"}
    assert clauses.inserted == {"`id`": "s.value_0", "`a`": "s.value_1"}
    text = clauses.sql("`c`.`t`", "folded")
    assert text.startswith("MERGE INTO `c`.`t` t USING folded s ON t.`id` <=> s.key.`id` ")
    update, insert = text.index("UPDATE SET t.`a` = "), text.index("INSERT (`id`, `a`)")
    assert text.index("DELETE") < update < insert
    # A table of key columns assigns one all the same.
    clauses = merge_clauses(columns=["id", "k"], keys=["id", "k"])
    assert list(clauses.changed) == ["`id`", "`k`"]
    assert clauses.same_key == "t.`id` <=> s.key.`id` AND t.`k` <=> s.key.`k`"
    # A column that the fold lacks is NULL in a new row and else left.
    clauses = merge_clauses(columns=["id", "a"], keys=["id"], existing=["ID", "a", "gone"])
    assert clauses.inserted == {"`id`": "s.value_0", "`a`": "s.value_1", "`gone`": "NULL"}
    assert "`gone`" not in clauses.changed
    # A table that a column orders changes for a higher value only.
    clauses = merge_clauses(columns=["id", "a", "_datastream_order"], keys=["id"])
    newer = "s.captured_1 AND s.value_2 > t.`_datastream_order`"
    assert clauses.changed["`a`"] == f"CASE WHEN {newer} THEN s.value_1 ELSE t.`a` END"


def test_every_name_is_quoted_and_no_other_module_quotes_one():
    assert quoted("a") == "`a`"
    assert quoted("a`b", "c.d", "`") == "`a``b`.`c.d`.````"
    assert double_quoted('a"b`') == '"a""b`"'
    assert text_literal("it's \\") == r"'it\'s \\'"
    names = ["i`d", "a`b", "c'd"]
    clauses = merge_clauses(columns=names, keys=["i`d"], existing=[*names, "old`"])
    assert clauses.same_key == "t.`i``d` <=> s.key.`i``d`"
    assert list(clauses.changed) == ["`a``b`", "`c'd`"]
    assert clauses.changed["`a``b`"].endswith("ELSE t.`a``b` END")
    assert list(clauses.inserted) == ["`i``d`", "`a``b`", "`c'd`", "`old```"]
    by_key = key_merge(columns=names, keys=["i`d"], existing=[*names, "old`"])
    assert by_key.same_key == "t.`i``d` <=> s.key.`i``d`"
    assert "ELSE t.`a``b` END" in by_key.changed["`a``b`"]
    assert "THEN t.`old``` END" in by_key.changed["`old```"]
    assert r"'c\'d'" in by_key.changed["`column_updates`"]
    # A name between marks of an f-string ends at a mark of its own.
    sources = [source for source in (ROOT / "spark_consumer").rglob("*.py") if source.stem != "sql"]
    assert len(sources) > 100
    assert not [
        source for source in sources if re.search(r"`\{[^}]*\}`|[ts]\.\"\{", source.read_text())
    ]


# ---------------------------------------------------------------- layouts and places
LAID_OUT = schema(id=LongType(), region=StringType(), tags=ArrayType(StringType()))


def test_partitions_and_clusters_are_columns_of_the_table():
    layout = TableLayout(partition_by={"a": ("region",)}, cluster_by={"b": ("id", "region")})
    assert layout.partition_columns("a", LAID_OUT) == ("region",)
    assert layout.cluster_columns("b", LAID_OUT) == ("id", "region")
    assert layout.partition_columns("b", LAID_OUT) == layout.cluster_columns("a", LAID_OUT) == ()
    for column in ("Region", "tags", "country"):
        layout = TableLayout(partition_by={"a": (column,)}, cluster_by={"a": (column,)})
        with pytest.raises(ConfigError, match=rf"^mirror_partition_by: .*a.*{column}.*id"):
            layout.partition_columns("a", LAID_OUT)
        with pytest.raises(ConfigError, match=r"^mirror_cluster_by: "):
            layout.cluster_columns("a", LAID_OUT)


def test_partitions_are_of_types_that_both_engines_write_alike():
    others = (DecimalType(38, 9), DoubleType(), FloatType(), BinaryType(), TimestampType())
    equal = (LongType(), BooleanType(), DateType(), StringType())
    every = StructType(
        [StructField(column_type.typeName(), column_type) for column_type in (*equal, *others)]
    )
    names = tuple(column_type.typeName() for column_type in equal)
    assert TableLayout(partition_by={"a": names}).partition_columns("a", every) == names
    for column_type in others:
        columns = {"a": ("long", column_type.typeName())}
        layout = TableLayout(partition_by=columns, cluster_by=columns)
        with pytest.raises(
            ConfigError, match=rf"^mirror_partition_by: .*a.*{column_type.typeName()}"
        ):
            layout.partition_columns("a", every)
        assert layout.cluster_columns("a", every) == columns["a"]


def test_a_property_that_needs_a_feature_is_left_to_spark():
    plain = ("delta.logRetentionDuration", "owner")
    featured = ("delta.enableDeletionVectors", "delta.enableChangeDataFeed")
    needs_feature = [TableLayout({name: "x"}).has_features for name in (*plain, *featured)]
    assert needs_feature == [False, False, True, True]


def test_tables_have_relative_paths_and_whole_addresses_and_are_opened_first():
    sink_tables = SinkTables("s3a://bucket/out/", folder="mirror", sink="mirror")
    assert (sink_tables.path("t"), sink_tables.address("t")) == (
        "mirror/t",
        "s3a://bucket/out/mirror/t",
    )
    with pytest.raises(InvariantViolation, match="open"):
        sink_tables.log(None, "t")


def test_the_first_error_is_raised_after_all_tables_were_tried(monkeypatch):
    written = []
    for_each_table(None, ["a"], written.append)  # in this thread
    for_each_table(None, [], written.append)
    assert written == ["a"]
    monkeypatch.setattr("pyspark.inheritable_thread_target", lambda _: lambda write: write)

    def write(name):
        written.append(name)
        if name in ("b", "c"):
            raise ValueError(name)

    with pytest.raises(ValueError, match="b"):
        for_each_table(None, ["a", "b", "c", "d"], write)
    assert sorted(written) == ["a", "a", "b", "c", "d"]


# ---------------------------------------------------------------- names in a catalog


def test_a_mirror_is_still_one_and_gets_its_names_with_a_merge():
    tables = {"accounts": TableVersion("mirror/accounts", 3, 1)}
    mirror, names = MagicMock(), MagicMock()
    mirror.name, mirror.merge.return_value, mirror.versions.return_value = "mirror", tables, tables
    sink = named(mirror, names, output=MemoryFiles())
    assert isinstance(sink, MergingSink)
    plain = SimpleNamespace(name="changelog", open=print, write=lambda _: tables)
    assert not isinstance(named(plain, names, output=MemoryFiles()), MergingSink)
    assert named(plain, MagicMock(), output=MemoryFiles()).write("release 4") == tables
    assert sink.versions(7, ()) == sink.merge("merge") == tables
    address = "file:/lake/mirror/accounts"
    names.register.assert_called_once_with("mirror", "accounts", address=address)


def test_a_start_gives_names_to_what_a_kill_has_left_without():
    output = MemoryFiles()
    tables = {
        "accounts": {"changelog": TableVersion("changelog/accounts", 3, 1)},
        "ledger": {"mirror": TableVersion("mirror/ledger", 2)},
    }
    write_manifest(output, Manifest(0, "q", 0, 0, 10, 1, tables))
    # What another query has released gets no names.
    for query_id, expected in (("q", ["accounts"]), ("other", [])):
        sink, names = MagicMock(spec=["open", "write"]), MagicMock()
        sink.name = "changelog"
        named(sink, names, output=output).open(query_id=query_id, release_max=0)
        sink.open.assert_called_once_with(query_id=query_id, release_max=0)
        names.create_schema.assert_called_once_with("changelog")
        assert [call.args[1] for call in names.register.call_args_list] == expected


# ---------------------------------------------------------------- sinks that merge


@pytest.mark.parametrize(("newest", "reads"), [(0, 0), (7, 0), (9, 0), (10, 1), (40, 1), (-1, 1)])
def test_a_merge_reads_a_table_that_may_have_taken_one_of_its_releases(monkeypatch, newest, reads):
    """Delta has deleted every commit of ours; -1: its note of our last release too."""
    log = SimpleNamespace(
        newest_release=newest, carriers=lambda **_: (), knows_after=lambda _release: False
    )
    frame = SimpleNamespace(count=lambda: 3)
    frame.select = lambda *_: frame
    reader = ChangelogReader(None, "/out")
    monkeypatch.setattr(reader, "_log", lambda _: log)
    monkeypatch.setattr(reader, "_frame", lambda *_: frame)
    merge = SimpleNamespace(after=9, through=12)
    assert reader._table(SimpleNamespace(table="accounts"), merge).rows == 3 * reads


# ---------------------------------------------------------------- late events
OPEN_US = 1_700_000_000_000_000


def event(source_us, *, order="01aa-1-1", deleted=False, as_text=False):
    at = format_rfc3339(source_us * 1_000) if as_text and source_us else source_us
    row = {SOURCE_ORDER: order, SOURCE_TIMESTAMP: at}
    new, old = (None, row) if deleted else (row, None)
    return {"record_sequence": f"{OPEN_US:x}-2a", "new_values": new, "old_values": old}


def test_an_event_is_late_if_its_time_is_before_the_first_one_that_was_open():
    for deleted, as_text in ((False, False), (False, True), (True, False), (True, True)):
        how = {"deleted": deleted, "as_text": as_text}
        lateness = [is_late(event(OPEN_US + offset, **how)) for offset in (-1, 0, 1)]
        assert lateness == [True, False, False]
    assert not is_late(event(None))
    # A row of a backfill is before all changes and never late.
    assert not is_late(event(OPEN_US - 1, order="00-1-1"))


def test_events_whose_time_the_stream_leaves_out_are_not_named():
    """`columns_left_out` may name any column but those of the key."""
    fields = [{"name": name} for name in ("id", SOURCE_ORDER)]
    row = {"name": "new_values", "type": ["null", {"type": "record", "fields": fields}]}
    values = {"id": 1, SOURCE_ORDER: "01aa-1-1"}
    changes = [{**event(0), "new_values": values, "ordinal": 0}]
    schemas = SimpleNamespace(reader_schema={"fields": [row]})
    collected = CollectedTable(None, None, changes, schemas)
    assert DeltaLateEvents("/unused").write(SimpleNamespace(tables={"t": collected})) == 0


def as_change(record):
    (mod,) = record.mods
    sides = {"new_values": mod.new_values or None, "old_values": mod.old_values or None}
    return {"record_sequence": record.record_sequence, **sides}


@pytest.mark.rule("datastream-late-events", "datastream-in-order")
@pytest.mark.parametrize("seed", range(20))
def test_without_them_changes_of_a_key_are_released_in_the_order_of_the_source(seed):
    world = run_world(seed, late_files=True)
    place = {event["uuid"]: number for number, event in enumerate(world.changes)}
    of_key, late = defaultdict(list), 0
    for message, _ in sorted(world.model.published, key=lambda pair: pair[0].order_key):
        change = as_change(message.value)
        row = {**message.value.mods[0].keys, **(change["new_values"] or change["old_values"])}
        if is_late(change):
            late += 1
        elif row["_datastream_uuid"] in place:
            of_key[row["id"]].append(place[row["_datastream_uuid"]])
    assert late == world.model.counts["late_events"] or world.deaths
    assert {key: sorted(places) for key, places in of_key.items()} == of_key
    assert len(world.model.published) > late


def test_a_frame_of_a_collected_table_is_made_once_and_only_if_it_is_asked_for():
    made = []
    schemas = Topic("t", {1: {"id": "INT64"}}, ["id"]).topic_schemas()
    collected = CollectedTable(None, lambda: made.append(1) or object(), [{"ordinal": 0}], schemas)
    assert (collected.rows, collected.schema["key"].dataType.fieldNames(), made) == (1, ["id"], [])
    assert collected.frame is collected.frame
    assert made == [1]
