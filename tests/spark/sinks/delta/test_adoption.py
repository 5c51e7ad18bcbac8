"""What others may do to the tables of an output, and what the next release does then."""

import json
from pathlib import Path
from types import SimpleNamespace

import deltalake
import pytest

from tidegate.schemas.errors import ConfigError, ExitCode
from tidegate.spark_consumer.errors import ForeignChange
from tidegate.spark_consumer.sinks.delta.adoption import AdoptedChange, adopt_changes
from tidegate.spark_consumer.sinks.delta.changelog_reader import ChangelogReader
from tidegate.spark_consumer.sinks.delta.direct.way import find_direct_way
from tidegate.spark_consumer.sinks.kinds import changelog_sink
from tidegate.spark_consumer.sinks.manifest import Manifest
from tidegate.spark_consumer.sinks.merge.mirror import DeltaMirrorSink
from tidegate.spark_consumer.sinks.port import Merge
from tidegate.spark_consumer.sinks.sql import session_settings

pytestmark = [pytest.mark.spark, pytest.mark.slow]

COLUMNS = {"id": "INT64", "a": "STRING(MAX)"}
CHANGELOG, MIRROR = "changelog/t", "mirror/t"


BY_SPARK = pytest.param(False, marks=pytest.mark.deep, id="spark")
BY_DELTA_RS = pytest.param(True, id="delta-rs")


@pytest.fixture(params=[BY_SPARK, BY_DELTA_RS])
def small(request):
    """Both ways of writing a release."""
    return request.param


@pytest.fixture
def outlet(kit, small):
    """An output with a release of two rows, and what tests do with it."""
    topic = kit.Topic("t", {1: COLUMNS}, ["id"])
    direct = find_direct_way(kit.output, rows_max=100)

    def opened(release_max=100):
        sinks = [
            changelog_sink(kit.spark, kit.output, direct=direct),
            DeltaMirrorSink(kit.spark, kit.output, direct=direct),
        ]
        for sink in sinks:
            sink.open(query_id="query-1", release_max=release_max)
        return sinks

    def write(sinks, number, *history):
        changes = [
            (topic, kit.Change(mod, {"id": key}, new, us=number * 1_000 + n, every=False))
            for n, (mod, key, new) in enumerate(history)
        ]
        release = kit.release(number, changes, topics=[topic], small=small)
        written = [sink.write(release)["t"] for sink in sinks]
        return {sink.name: version for sink, version in zip(sinks, written, strict=True)}

    def sql(text, path):
        kit.spark.sql(text.format(f"delta.`{kit.output}/{path}`")).collect()

    def rows(path, *columns):
        found = kit.read(path).select(list(columns)).to_pylist()
        return sorted(tuple(row.values()) for row in found)

    def adopt(release_max=100):
        return adopt_changes(kit.spark, kit.output, query_id="query-1", release_max=release_max)

    sinks = opened()
    write(sinks, 0, ("INSERT", 1, {"a": "x"}), ("INSERT", 2, {"a": "y"}))
    return SimpleNamespace(
        sinks=sinks,
        opened=opened,
        write=write,
        sql=sql,
        rows=rows,
        adopt=adopt,
        kit=kit,
        topic=topic,
        direct=direct,
    )


def by_sql(text):
    """An operation on a table; `{column}` is a column that it has."""

    def operate(outlet, path):
        column = "id" if path == MIRROR else "ordinal"
        outlet.sql(text.replace("{column}", column), path)

    return operate


comment = by_sql("ALTER TABLE {} ALTER COLUMN {column} COMMENT 'known to all'")
cluster = by_sql("ALTER TABLE {} CLUSTER BY ({column})")
constrain = by_sql("ALTER TABLE {} ADD CONSTRAINT positive CHECK ({column} >= 0)")
optimize = by_sql("OPTIMIZE {}")
add_column = by_sql("ALTER TABLE {} ADD COLUMNS (note STRING)")
set_property = by_sql("ALTER TABLE {} SET TBLPROPERTIES ('team' = 'others')")


def compact_by_delta_rs(outlet, path):
    deltalake.DeltaTable(f"{outlet.kit.output}/{path}").optimize.compact()


def vacuum(outlet, path):
    table = deltalake.DeltaTable(f"{outlet.kit.output}/{path}")
    table.vacuum(retention_hours=1_000, dry_run=False)


@pytest.mark.parametrize(
    "operations",
    [
        [comment, optimize, compact_by_delta_rs, vacuum, set_property, add_column],
        # From these on, a table has features that only Spark knows.
        pytest.param([constrain, cluster], marks=pytest.mark.deep),
    ],
    ids=["plain", "features"],
)
def test_what_changes_no_row_changes_nothing_for_us(outlet, operations):
    outlet.write(outlet.sinks, 1, ("UPDATE", 1, {"a": "x1"}))
    for path in (CHANGELOG, MIRROR):
        for operate in operations:
            operate(outlet, path)
    changes = ("UPDATE", 2, {"a": "y1"}), ("INSERT", 3, {"a": "z"}), ("DELETE", 1, None)
    outlet.write(outlet.sinks, 2, *changes)
    outlet.write(outlet.opened(), 2, *changes)
    assert outlet.rows(MIRROR, "id", "a") == [(2, "y1"), (3, "z")]
    numbers = [(0, 0), (0, 1), (1, 0), (2, 0), (2, 1), (2, 2)]
    assert outlet.rows(CHANGELOG, "release", "ordinal") == numbers


@pytest.mark.parametrize(
    ("path", "operation", "text"),
    [
        (CHANGELOG, "DELETE", "DELETE FROM {} WHERE ordinal = 1"),
        (MIRROR, "UPDATE", "UPDATE {} SET id = 7 WHERE id = 1"),
    ],
)
def test_changes_of_rows_by_others_stop_the_output_until_they_are_adopted(
    outlet, path, operation, text
):
    outlet.sql(text, path)
    change = ("INSERT", 3, {"a": "z"})
    with pytest.raises(ForeignChange, match=f"operation='{operation}'") as raised:
        outlet.write(outlet.sinks, 1, change)
    assert raised.value.exit_code == ExitCode.USAGE
    with pytest.raises(ForeignChange, match="tidegate-consumer adopt"):
        outlet.opened()
    assert outlet.adopt() == [AdoptedChange(path, 2, operation)]
    assert outlet.adopt() == []
    outlet.write(outlet.opened(), 1, change)
    assert (3, "z") in outlet.rows(MIRROR, "id", "a")
    rows = outlet.rows(CHANGELOG, "release", "ordinal")
    assert [pair for pair in rows if pair[0]] == [(1, 0)]


def test_a_table_whose_name_begins_with_an_underscore_is_checked_and_adopted(kit):
    """A source may have such a table, and names of other databases may become such."""
    topic = kit.Topic("_t", {1: COLUMNS}, ["id"])
    sink = changelog_sink(kit.spark, kit.output)
    sink.open(query_id="query-1", release_max=100)
    for number in range(2):
        change = kit.Change("INSERT", {"id": number}, {"a": "x"}, us=number + 1)
        sink.write(kit.release(number, [(topic, change)]))
    with pytest.raises(ConfigError, match="later release"):
        sink.open(query_id="query-1", release_max=0)
    kit.spark.sql(f"DELETE FROM delta.`{kit.output}/changelog/_t` WHERE release = 0")
    (adopted,) = adopt_changes(kit.spark, kit.output, query_id="query-1", release_max=1)
    assert (adopted.table, adopted.operation) == ("changelog/_t", "DELETE")


@pytest.mark.parametrize(
    ("operation", "text"),
    [
        ("RESTORE", "RESTORE TABLE {} TO VERSION AS OF 1"),
        pytest.param(
            "WRITE", "INSERT OVERWRITE {} VALUES (9, 'theirs')", marks=pytest.mark.deep, id="WRITE"
        ),
    ],
)
def test_what_may_undo_a_release_is_not_adopted(outlet, operation, text):
    outlet.write(outlet.sinks, 1, ("INSERT", 3, {"a": "z"}))
    outlet.sql("DELETE FROM {} WHERE release = 0", CHANGELOG)
    outlet.sql(text, MIRROR)
    with pytest.raises(ConfigError, match="later release"):
        outlet.adopt(release_max=0)
    with pytest.raises(ForeignChange, match=f"operation='{operation}'"):
        outlet.adopt()
    with pytest.raises(ForeignChange, match="operation='DELETE'"):
        outlet.opened()


AUTO_COMPACTION = {
    "spark.databricks.delta.autoCompact.enabled": "true",
    "spark.databricks.delta.autoCompact.minNumFiles": "2",
}


@pytest.mark.parametrize(
    "small",
    [pytest.param(False, id="spark"), pytest.param(True, marks=pytest.mark.deep, id="delta-rs")],
    indirect=True,
)
def test_commits_of_auto_compaction_are_not_releases(outlet, small):
    """Delta's own OPTIMIZE runs in the session of the MERGE, and inherits its metadata."""
    with session_settings(outlet.kit.spark, AUTO_COMPACTION):
        for number in (1, 2):
            outlet.write(outlet.sinks, number, ("INSERT", 10 + number, {"a": "z"}))
            versions = outlet.write(outlet.opened(), number, ("INSERT", 10 + number, {"a": "z"}))
    history = deltalake.DeltaTable(f"{outlet.kit.output}/{MIRROR}").history()
    inherited = [
        one["version"]
        for one in history
        if one["operation"] == "OPTIMIZE" and '"release"' in one.get("userMetadata", "")
    ]
    assert bool(inherited) is not small  # delta-rs does not compact by itself
    (named,) = (one["operation"] for one in history if one["version"] == versions["mirror"].version)
    assert named == "MERGE"
    assert outlet.adopt() == []
    outlet.sql("DELETE FROM {} WHERE id = 1", MIRROR)
    assert [one.operation for one in outlet.adopt()] == ["DELETE"]
    outlet.write(outlet.opened(), 3, ("DELETE", 2, None))
    assert outlet.rows(MIRROR, "id") == [(11,), (12,)]


def test_an_idle_table_whose_log_was_cleaned_goes_on(outlet):
    kit = outlet.kit
    versions = outlet.write(outlet.sinks, 1, ("INSERT", 3, {"a": "z"}))
    manifest = Manifest(1, "query-1", 1, 0, 2_000_000, 1, {"t": versions})
    folder = Path(kit.output) / "_releases"
    folder.mkdir()
    (folder / "000000000001.json").write_text(json.dumps(manifest.content()))
    for path in (CHANGELOG, MIRROR):
        for operate in (set_property, optimize, set_property):
            operate(outlet, path)
        table = deltalake.DeltaTable(f"{kit.output}/{path}")
        table.create_checkpoint()
        log = Path(kit.output) / path / "_delta_log"
        for number in range(table.version()):
            (log / f"{number:020d}.json").unlink()
    kit.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    with pytest.raises(ConfigError, match="later release"):
        outlet.opened(release_max=0)
    sinks = outlet.opened(release_max=1)
    heads = {sink.name: sink.heads()[f"{sink.name}/t"] for sink in sinks}
    # The release again, as after a kill, and one without a change.
    for number, changes in ((1, [("INSERT", 3, {"a": "z"})]), (2, [])):
        found = outlet.write(sinks, number, *changes)
        assert {name: version.version for name, version in found.items()} == heads
        assert outlet.rows(MIRROR, "id", "a") == [(1, "x"), (2, "y"), (3, "z")]
    # A mirror that is behind finds the rows of releases whose commits are gone.
    changelog = ChangelogReader(kit.spark, kit.output, direct=outlet.direct)
    changelog.open(query_id="query-1")
    merge = Merge("query-1", 2, 0, 1, 2_000_000, tables={"t": outlet.topic.topic_schemas()})
    assert changelog.release(merge).rows == 1
    assert outlet.adopt() == []
    outlet.write(outlet.opened(), 3, ("UPDATE", 3, {"a": "z3"}), ("DELETE", 1, None))
    assert outlet.rows(MIRROR, "id", "a") == [(2, "y"), (3, "z3")]
    numbers = [(0, 0), (0, 1), (1, 0), (3, 0), (3, 1)]
    assert outlet.rows(CHANGELOG, "release", "ordinal") == numbers
