"""One merge of several releases leaves what merging them one by one leaves."""

from __future__ import annotations

import copy
import random
from pathlib import Path

import pytest

from tests.spark.sinks.delta.test_direct_way import history
from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.errors import ChangesNotConserved, ForeignChange
from tidegate.spark_consumer.sinks.delta import changelog_reader
from tidegate.spark_consumer.sinks.delta.adoption import adopt_changes
from tidegate.spark_consumer.sinks.delta.as_of import as_of
from tidegate.spark_consumer.sinks.delta.changelog import DeltaChangelogSink
from tidegate.spark_consumer.sinks.delta.direct_place import DirectPlace
from tidegate.spark_consumer.sinks.delta.direct_table import DirectTable
from tidegate.spark_consumer.sinks.delta.direct_way import DirectWay
from tidegate.spark_consumer.sinks.delta.incomplete import IncompleteTables
from tidegate.spark_consumer.sinks.delta.mirror import DeltaMirrorSink
from tidegate.spark_consumer.sinks.manifest import newest_manifest
from tidegate.spark_consumer.sinks.port import Merge
from tidegate.spark_consumer.sinks.release_writer import merge_mirrors, write_release

pytestmark = [pytest.mark.spark, pytest.mark.slow]

COLUMNS = {"id": "INT64", "a": "STRING(MAX)", "b": "INT64"}


class Output:
    """Changelog and mirror over one folder; `open` does what a restart does."""

    def __init__(self, kit, folder, *, is_direct):
        self.kit, self.folder, self.is_direct = kit, str(folder), is_direct
        self.open()

    def open(self, *, mirror_max=100):
        direct = DirectWay(DirectPlace(self.folder)) if self.is_direct else None
        self.changelog = DeltaChangelogSink(self.kit.spark, self.folder, direct=direct)
        self.mirror = DeltaMirrorSink(self.kit.spark, self.folder, direct=direct)
        self.changelog.open(query_id="query-1", release_max=100)
        self.mirror.open(query_id="query-1", release_max=mirror_max)

    def release(self, number, topic, changes):
        topic = copy.deepcopy(topic)  # it counts offsets, which are the same in a replay
        pairs = [(topic, change) for change in changes]
        return self.kit.release(number, pairs, topics=[topic], small=self.is_direct)

    def append(self, number, topic, changes):
        return self.changelog.write(self.release(number, topic, changes))

    def write(self, number, topic, changes):
        self.append(number, topic, changes)
        return self.mirror.write(self.release(number, topic, changes))

    def merge(self, topic, after, through):
        schemas = {topic.topic: topic.topic_schemas()}
        through_us = (through + 1) * 1_000_000
        return self.mirror.merge(Merge("query-1", through, after, through, through_us, schemas))

    def rows(self, folder, version=None):
        """Rows as text, in which NaN equals NaN; read without Spark."""
        import deltalake

        path = f"{self.folder}/{folder}/t"
        if not Path(path).exists():
            return []
        table = deltalake.DeltaTable(path, version=version).to_pyarrow_table()
        return sorted(map(repr, table.to_pylist()))


@pytest.fixture
def merges(monkeypatch):
    """Names of the ways in which mirrors were merged."""
    called = []
    merge, by_spark = DirectTable.merge, DeltaMirrorSink._merge_table
    monkeypatch.setattr(
        DirectTable, "merge", lambda *a, **b: (called.append("direct"), merge(*a, **b))[1]
    )
    monkeypatch.setattr(
        DeltaMirrorSink,
        "_merge_table",
        lambda *a, **b: (called.append("spark"), by_spark(*a, **b))[1],
    )
    return called


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "is_direct",
    [pytest.param(False, marks=pytest.mark.deep, id="spark"), pytest.param(True, id="direct")],
)
def test_every_type_and_changing_columns(kit, tmp_path, merges, is_direct):
    parts = history()
    one_by_one = Output(kit, tmp_path / "one", is_direct=is_direct)
    versions = [one_by_one.write(n, *part)["t"].version for n, part in enumerate(parts)]
    together = Output(kit, tmp_path / "together", is_direct=is_direct)
    for number, part in enumerate(parts):
        together.append(number, *part)
    merges.clear()
    # A merge spans no change of schemas, and comes as late as anybody wants.
    for after, through in ((-1, 1), (1, 2), (2, 3), (3, 5)):
        merged = together.merge(parts[through][0], after, through)["t"]
        assert together.rows("mirror", merged.version) == one_by_one.rows(
            "mirror", versions[through]
        )
    assert together.rows("incomplete") == one_by_one.rows("incomplete")
    assert len(together.rows("incomplete")) == 4
    assert set(merges) == {"direct" if is_direct else "spark"}


def random_history(seed):
    """Four releases of any changes of forty keys, each with a history of its own."""
    rng = random.Random(seed)
    values = {"a": (None, "x", "y"), "b": (None, 1, 2)}
    parts = []
    for number in range(4):
        changes = []
        for key in range(40):
            for _ in range(rng.choice((0, 0, 1, 1, 2, 3))):
                mod = rng.choice(("INSERT", "UPDATE", "UPDATE", "DELETE"))
                new = {name: rng.choice(of) for name, of in values.items()}
                if mod == "UPDATE":
                    new = {name: new[name] for name in rng.choice((("a",), ("b",), ("a", "b")))}
                changes.append((mod, {"id": key}, None if mod == "DELETE" else new))
        parts.append((number, changes))
    return parts


@pytest.mark.slow
@pytest.mark.deep
@pytest.mark.timeout(900)
def test_any_grouping_by_both_ways_leaves_the_same_mirror(kit, tmp_path, merges):
    topic = kit.Topic("t", {1: COLUMNS}, ["id"])
    parts = [
        (number, topic, [
            kit.Change(mod, key, new, us=number * 10_000 + n)
            for n, (mod, key, new) in enumerate(changes)
        ])
        for number, changes in random_history(7)
    ]  # fmt: skip
    one_by_one = Output(kit, tmp_path / "one", is_direct=True)
    for part in parts:
        one_by_one.write(*part)
    expected = one_by_one.rows("mirror")
    assert len(expected) > 10
    groupings = {
        "all by Spark": (False, ((-1, 3),)),
        "all by delta-rs": (True, ((-1, 3),)),
        "two and two": (False, ((-1, 1), (1, 3))),
        "one and three": (True, ((-1, 0), (0, 3))),
    }
    asides = {}
    for name, (is_direct, bounds) in groupings.items():
        output = Output(kit, tmp_path / name.replace(" ", "-"), is_direct=is_direct)
        for part in parts:
            output.append(*part)
        merges.clear()
        for after, through in bounds:
            output.merge(topic, after, through)
            output.open()
        assert output.rows("mirror") == expected, name
        assert merges == ["direct" if is_direct else "spark"] * len(bounds)
        asides[name] = output.rows("incomplete")
    assert asides["all by Spark"] == asides["all by delta-rs"]
    assert set(asides["all by Spark"]) <= set(asides["two and two"])
    assert set(asides["two and two"]) <= set(one_by_one.rows("incomplete"))


def filled(kit, tmp_path, *, is_direct=False, count=3):
    topic = kit.Topic("t", {1: COLUMNS}, ["id"])
    output = Output(kit, tmp_path / "out", is_direct=is_direct)
    for number in range(count):
        changes = [
            kit.Change("INSERT", {"id": number}, {"a": "x", "b": number}, us=number * 10 + 1),
            kit.Change("UPDATE", {"id": 99}, {"b": number}, us=number * 10 + 2),
        ]
        output.append(number, topic, changes)
    return topic, output


@pytest.mark.parametrize("is_direct", [False, True], ids=["spark", "direct"])
def test_a_merge_that_was_killed_before_its_side_table_is_made_good_once(
    kit, tmp_path, monkeypatch, is_direct
):
    topic, output = filled(kit, tmp_path, is_direct=is_direct)

    class Killed(Exception):
        pass

    def kill(*_, **__):
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(IncompleteTables, "_append", kill)
        with pytest.raises(Killed):
            output.merge(topic, -1, 2)
    found = []
    for _ in range(2):
        output.open(mirror_max=2)
        found.append(output.merge(topic, -1, 2))
    assert found[0] == found[1]
    assert [row.count("'x'") for row in output.rows("mirror")] == [1, 1, 1]
    aside = kit.spark.read.format("delta").load(f"{output.folder}/incomplete/t").collect()
    assert sorted((row["release"], row["ordinal"]) for row in aside) == [(0, 1), (1, 1), (2, 1)]
    with pytest.raises(ConfigError, match="later release"):
        output.open(mirror_max=1)


def test_a_table_without_changes_keeps_its_version_and_one_that_is_new_has_none(kit, tmp_path):
    topic, output = filled(kit, tmp_path)
    schemas = topic.topic_schemas()
    assert output.mirror.versions(2, [schemas]) == {}
    first = output.merge(topic, -1, 1)["t"]
    assert output.mirror.versions(1, [schemas]) == {"t": first}
    assert output.mirror.versions(0, [schemas]) == {}
    assert output.merge(topic, 1, 1)["t"] == first
    last = output.merge(topic, 1, 2)["t"]
    assert output.mirror.versions(1, [schemas]) == {"t": first}
    assert last.version == first.version + 1


@pytest.mark.parametrize("is_direct", [False, True], ids=["spark", "direct"])
def test_a_changelog_that_lacks_changes_is_not_merged(kit, tmp_path, monkeypatch, is_direct):
    topic, output = filled(kit, tmp_path, is_direct=is_direct)
    monkeypatch.setattr(changelog_reader, "_rows_added", lambda _: 7)
    with pytest.raises(ChangesNotConserved, match=r"rows=6.*expected=7"):
        output.merge(topic, -1, 2)
    assert output.rows("mirror") == []


def test_rows_that_others_deleted_are_refused_and_after_adopt_taken_as_they_are(kit, tmp_path):
    topic, output = filled(kit, tmp_path)
    output.merge(topic, -1, 0)
    path = f"{output.folder}/changelog/t"
    kit.spark.sql(f"DELETE FROM delta.`{path}` WHERE key.id = 1")
    with pytest.raises(ForeignChange):
        output.merge(topic, 0, 2)
    adopt_changes(kit.spark, output.folder, query_id="query-1", release_max=100)
    output.open()
    output.merge(topic, 0, 2)
    assert len(output.rows("mirror")) == 2


@pytest.mark.parametrize("is_direct", [False, True], ids=["spark", "direct"])
def test_a_compacted_and_vacuumed_changelog_is_merged(kit, tmp_path, is_direct):
    import deltalake

    topic, output = filled(kit, tmp_path, is_direct=is_direct)
    table = deltalake.DeltaTable(f"{output.folder}/changelog/t")
    table.optimize.compact()
    assert table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    output.open()
    output.merge(topic, -1, 1)
    assert len(output.rows("mirror")) == 2


@pytest.mark.rule("sink-mirror")
def test_manifests_name_the_older_cut_until_the_merge_and_as_of_reads_it(kit, tmp_path):
    from types import SimpleNamespace

    from tidegate.spark_consumer.checkpoint.storage import Storage
    from tidegate.spark_consumer.core.plan import MergeMirror

    topic = kit.Topic("t", {1: COLUMNS}, ["id"])
    output = Output(kit, tmp_path / "out", is_direct=True)
    gate = Storage(kit.spark, str(tmp_path / "gate"))
    gate.take()
    files = Storage(kit.spark, output.folder, guard=gate)

    def publish(number, behind):
        change = kit.Change("INSERT", {"id": number}, {"a": "x", "b": 1}, us=number + 1)
        sinks = [output.changelog] if behind else [output.changelog, output.mirror]
        one = output.release(number, topic, [change])
        list(
            write_release(
                one,
                sinks=sinks,
                output=files,
                behind=None if behind is None else ([behind[0]], behind[1]),
            )
        )

    def seen(time_us):
        found = as_of(kit.spark, output.folder, time_us)["t"].collect()
        return sorted(row["id"] for row in found)

    publish(0, None)
    publish(1, (output.mirror, 0))
    publish(2, (output.mirror, 0))
    assert newest_manifest(files, watermark_us=10**15).mirror_release == 0
    assert seen(10**15) == [0]
    step = MergeMirror(0, 2)
    plan = SimpleNamespace(query_id="query-1", batch=2)
    topics = {topic.topic: topic.topic_schemas()}
    merge = {"plan": plan, "mirrors": [output.mirror], "topics": topics, "output": files}
    assert list(merge_mirrors(step, **merge)) == ["sink-mirror", "manifest"]
    assert seen(10**15) == [0, 1, 2]
    assert seen(2_999_999) == [0]
    publish(2, (output.mirror, 0))  # a replay of the release alone goes back to no older cut
    assert seen(10**15) == [0, 1, 2]
