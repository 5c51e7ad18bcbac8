"""Small releases in a store are written by delta-rs, with the access that Spark's session has."""

from __future__ import annotations

import pytest
from deltalake.exceptions import DeltaError

from tests.spark.sinks.delta.test_both_ways import FOLDERS, assert_equal, history
from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.sinks.delta.direct.table import DirectTable
from tidegate.spark_consumer.sinks.delta.direct.way import find_direct_way
from tidegate.spark_consumer.sinks.delta.layout import TableLayout
from tidegate.spark_consumer.sinks.kinds import changelog_sink
from tidegate.spark_consumer.sinks.merge.mirror import DeltaMirrorSink
from tidegate.spark_consumer.sinks.tables import Commit

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def sinks(spark, output):
    direct = find_direct_way(output, rows_max=100, access=Storage(spark, output).access())
    assert direct is not None
    both = [sink(spark, output, direct=direct) for sink in (changelog_sink, DeltaMirrorSink)]
    for sink in both:
        sink.open(query_id="query-1", release_max=100)
    return both


def write(kit, sinks, number, part, *, small):
    topic, changes = part
    release = kit.release(
        number, [(topic, change) for change in changes], topics=[topic], small=small
    )
    for sink in sinks:
        sink.write(release)


@pytest.fixture
def direct_commits(monkeypatch):
    noted = []

    def noting(method):
        def call(self, *arguments, **named):
            noted.append(self._table.table_uri)
            return method(self, *arguments, **named)

        return call

    for name in ("append", "merge"):
        monkeypatch.setattr(DirectTable, name, noting(getattr(DirectTable, name)))
    return noted


def test_both_ways_leave_the_same_tables_and_go_on_after_each_other(
    kit, spark, store, direct_commits
):
    """In a storage where each request takes its time: every type, and columns that change."""
    outputs = {name: f"{store.bucket()}/a/{name}" for name in ("spark", "mixed")}
    for name, output in outputs.items():
        opened = sinks(spark, output)
        for number, part in enumerate(history()[:4]):
            write(kit, opened, number, part, small=name == "mixed" and number != 2)
    for folder in FOLDERS:
        one, other = (
            spark.read.format("delta").load(f"{output}/{folder}/t") for output in outputs.values()
        )
        assert_equal(one, other)
    assert {uri.split("/")[4] for uri in direct_commits} == {"mixed"}
    assert all(uri.startswith(f"{store.direct_scheme}://") for uri in direct_commits)


def test_a_release_is_written_once_by_a_run_that_starts_again(kit, spark, store):
    output = f"{store.bucket()}/out"
    for small in (True, False, True):
        write(kit, sinks(spark, output), 0, history()[0], small=small)
    changelog = spark.read.format("delta").load(f"{output}/changelog/t")
    assert changelog.count() == len(history()[0][1])


def test_of_two_runs_that_commit_to_one_version_one_is_refused(kit, spark, store):
    """What decides is the store's condition, not a look at it."""
    output = f"{store.bucket()}/out"
    write(kit, sinks(spark, output), 0, history()[0], small=True)
    table = f"{output}/changelog/t".replace(f"{store.scheme}:", f"{store.direct_scheme}:")
    both = [DirectTable(table, options=store.options) for _ in range(2)]
    rows = [both[0].rows([], both[0].schema.names) for _ in both]
    commit = Commit("other", "changelog", release=7, through_us=7)
    both[0].append(rows[0], commit=commit)
    with pytest.raises(DeltaError, match="Concurrent transaction failed"):
        both[1].append(rows[1], commit=commit)


def test_the_key_of_a_partition_may_be_longer_than_a_folders_name(kit, spark, store):
    """Both ways write it, and each reads what the other wrote."""
    output = f"{store.bucket()}/out"
    direct = find_direct_way(output, rows_max=100, access=Storage(spark, output).access())
    layout = TableLayout(partition_by={"t": ("a",)})
    sink = DeltaMirrorSink(spark, output, direct=direct, layout=layout)
    sink.open(query_id="query-1", release_max=100)
    topic = kit.Topic("t", {1: {"id": "INT64", "a": "STRING(MAX)", "b": "INT64"}}, ["id"])
    rows = {}
    for number, small in enumerate((True, False, True, False)):
        new = {"a": "xyzé"[number] * (140 if number == 3 else 850), "b": number}
        rows[number] = new
        changes = [("INSERT", {"id": number}, new)]
        if number:
            rows[number - 1]["b"] = 9
            changes.append(("UPDATE", {"id": number - 1}, {"b": 9}))
        write(
            kit, [sink], number, (topic, [kit.Change(*change) for change in changes]), small=small
        )
    mirror = spark.read.format("delta").load(f"{output}/mirror/t").orderBy("id")
    assert [row.asDict() for row in mirror.collect()] == [
        {"id": key, **row} for key, row in rows.items()
    ]
    too_long = [kit.Change("INSERT", {"id": 9}, {"a": "x" * 1_000, "b": 0})]
    for small in (True, False):
        with pytest.raises(ConfigError, match=r"1,024.*column='a', rows=1"):
            write(kit, [sink], 4, (topic, too_long), small=small)
