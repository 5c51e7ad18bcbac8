"""One merge of several releases leaves what merging them one by one leaves."""

from types import SimpleNamespace

import deltalake
import pytest

from tests.spark.sinks.delta.test_both_ways import history
from tests.spark.sinks.outputs import Output
from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.core.plan import MergeMirror
from tidegate.spark_consumer.errors import ChangesNotConserved, ForeignChange
from tidegate.spark_consumer.sinks.delta import changelog_reader
from tidegate.spark_consumer.sinks.delta.adoption import adopt_changes
from tidegate.spark_consumer.sinks.delta.as_of import as_of
from tidegate.spark_consumer.sinks.manifest import newest_manifest
from tidegate.spark_consumer.sinks.merge.sink import IncompleteTables
from tidegate.spark_consumer.sinks.release_writer import merge_mirrors, write_release

pytestmark = [pytest.mark.spark, pytest.mark.slow]
BOTH = pytest.mark.parametrize(
    "is_direct",
    [pytest.param(False, marks=pytest.mark.deep, id="spark"), pytest.param(True, id="direct")],
)

COLUMNS = {"id": "INT64", "a": "STRING(MAX)", "b": "INT64"}


@pytest.mark.deep
@pytest.mark.timeout(900)
@BOTH
def test_every_type_and_changing_columns(kit, tmp_path, is_direct):
    parts = history()
    one_by_one, together = (Output(kit, tmp_path / name) for name in ("one", "together"))
    versions = []
    for number, part in enumerate(parts):
        versions.append(one_by_one.write(number, *part, small=is_direct, to="mirror")["t"].version)
        together.append(number, *part)
    # A merge spans no change of schemas, and comes as late as anybody wants.
    for after, through in ((-1, 1), (1, 2), (2, 3), (3, 5)):
        merged = together.merge(parts[through][0], after, through, small=is_direct, to="mirror")
        expected = one_by_one.texts("mirror", versions[through])
        assert together.texts("mirror", merged["t"].version) == expected
    assert together.texts("incomplete") == one_by_one.texts("incomplete")
    assert len(together.texts("incomplete")) == 4


def filled(kit, tmp_path, *, is_direct=True):
    topic = kit.Topic("t", {1: COLUMNS}, ["id"])
    output = Output(kit, tmp_path / "out")
    for number in range(3):
        changes = [
            kit.Change("INSERT", {"id": number}, {"a": "x", "b": number}, us=number * 10 + 1),
            kit.Change("UPDATE", {"id": 99}, {"b": number}, us=number * 10 + 2),
        ]
        output.append(number, topic, changes, small=is_direct)

    def merge(after, through):
        return output.merge(topic, after, through, small=is_direct, to="mirror")["t"]

    return topic, output, merge


@BOTH
def test_a_merge_that_was_killed_before_its_side_table_is_made_good_once(
    kit, tmp_path, monkeypatch, is_direct
):
    _, output, merge = filled(kit, tmp_path, is_direct=is_direct)

    class Killed(Exception):
        pass

    def kill(*_, **__):
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(IncompleteTables, "_append", kill)
        with pytest.raises(Killed):
            merge(-1, 2)
    found = []
    for _ in range(2):
        output.open(release_max=2)
        found.append(merge(-1, 2))
    assert found[0] == found[1]
    assert [row.count("'x'") for row in output.texts("mirror")] == [1, 1, 1]
    aside = kit.spark.read.format("delta").load(f"{output.folder}/incomplete/t").collect()
    assert sorted((row["release"], row["ordinal"]) for row in aside) == [(0, 1), (1, 1), (2, 1)]
    with pytest.raises(ConfigError, match="later release"):
        output.open(release_max=1)


@BOTH
def test_a_changelog_that_lacks_changes_is_not_merged(kit, tmp_path, monkeypatch, is_direct):
    _, output, merge = filled(kit, tmp_path, is_direct=is_direct)
    monkeypatch.setattr(changelog_reader, "_rows_added", lambda _: 7)
    with pytest.raises(ChangesNotConserved, match=r"rows=6.*expected=7"):
        merge(-1, 2)
    assert output.texts("mirror") == []


def test_rows_that_others_deleted_are_refused_and_after_adopt_taken_as_they_are(kit, tmp_path):
    _, output, merge = filled(kit, tmp_path)
    merge(-1, 0)
    path = f"{output.folder}/changelog/t"
    kit.spark.sql(f"DELETE FROM delta.`{path}` WHERE key.id = 1")
    with pytest.raises(ForeignChange):
        merge(0, 2)
    adopt_changes(kit.spark, output.folder, query_id="query-1", release_max=100)
    output.open()
    merge(0, 2)
    assert len(output.texts("mirror")) == 2


@BOTH
def test_a_compacted_and_vacuumed_changelog_is_merged(kit, tmp_path, is_direct):
    _, output, merge = filled(kit, tmp_path, is_direct=is_direct)
    table = deltalake.DeltaTable(f"{output.folder}/changelog/t")
    table.optimize.compact()
    assert table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    output.open()
    merge(-1, 1)
    assert len(output.texts("mirror")) == 2


@pytest.mark.rule("sink-mirror")
def test_manifests_name_the_older_cut_until_the_merge_and_as_of_reads_it(kit, tmp_path):
    topic = kit.Topic("t", {1: COLUMNS}, ["id"])
    output = Output(kit, tmp_path / "out")
    changelog, mirror = (output.sinks[name, True] for name in ("changelog", "mirror"))
    gate = Storage(kit.spark, str(tmp_path / "gate"))
    gate.take()
    files = Storage(kit.spark, output.folder, guard=gate)

    def publish(number, behind):
        change = kit.Change("INSERT", {"id": number}, {"a": "x", "b": 1}, us=number + 1)
        sinks = [changelog] if behind else [changelog, mirror]
        one = output.release(number, topic, [change], small=True)
        list(write_release(one, sinks=sinks, output=files, waiting_mirrors=behind))

    def seen(time_us):
        rows = as_of(kit.spark, output.folder, time_us)["t"].collect()
        return sorted(row["id"] for row in rows)

    publish(0, None)
    publish(1, ([mirror], 0))
    publish(2, ([mirror], 0))
    assert newest_manifest(files, watermark_us=10**15).mirror_release == 0
    assert seen(10**15) == [0]
    step = MergeMirror(0, 2)
    plan = SimpleNamespace(query_id="query-1", batch=2)
    topics = {topic.topic: topic.topic_schemas()}
    merge = {"plan": plan, "mirrors": [mirror], "topics": topics, "output": files}
    assert list(merge_mirrors(step, **merge)) == ["sink-mirror", "manifest"]
    assert seen(10**15) == [0, 1, 2]
    assert seen(2_999_999) == [0]
    publish(2, ([mirror], 0))  # a replay of the release alone goes back to no older cut
    assert seen(10**15) == [0, 1, 2]
