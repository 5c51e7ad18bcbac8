"""What every sink promises: each change once and in order, through repetitions, kills and restarts.

One output for each sink and way of writing, in which several tests look; `sink_cases.py` makes it.
"""

import functools
import itertools
import shutil
from pathlib import Path

import deltalake
import pytest

from tests.spark.sinks.conftest import require_iceberg
from tests.spark.sinks.sink_cases import (
    ACCOUNTS,
    ASIDE,
    COLUMNS,
    LAST,
    ORDERS,
    SINKS,
    KeptSink,
    expected,
)
from tests.topics import Change, Topic
from tidegate.schemas.errors import ConfigError, SchemaError
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.errors import TableMissing, WriterReplaced
from tidegate.spark_consumer.sinks.delta.direct.table import DirectTable
from tidegate.spark_consumer.sinks.delta.tables import SinkTables
from tidegate.spark_consumer.sinks.iceberg.catalog import JavaTable
from tidegate.spark_consumer.sinks.manifest import Manifest, write_manifest
from tidegate.spark_consumer.sinks.merge import history, mirror
from tidegate.spark_consumer.sinks.merge.by_key import DeltaMirrorByKeySink

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

DELTA = ("changelog", "mirror", "history")
FOLDERS = ("parquet", "parquet_transactions", "parquet_by_key")
OWNED = tuple(name for name in SINKS if name not in {"function", "batches", "topic"})
KEYED = ("changelog_by_key", "mirror_by_key")
VERSIONED = (*DELTA, *KEYED, "transactions", "iceberg_changelog", "iceberg_mirror")
# What `./dev test` runs; `./dev test-real` and CI run all.
QUICK = {("changelog", True), ("changelog", False), ("mirror", True), ("function", False)}
WAYS = [
    pytest.param(
        (name, small),
        id=f"{name}-{'small' if small else 'large'}",
        marks=() if (name, small) in QUICK else pytest.mark.slow,
    )
    for name in SINKS
    for small in ((True, False) if name in (*DELTA, "parquet", "datastream_files") else (False,))
]


def written(name, small, spark, folder):
    """A sink after all releases of one process, and the tables' versions at each."""
    if name.startswith("iceberg"):
        require_iceberg(spark)
    kept = KeptSink(name, spark, folder)
    sink = kept.open(small=small, release_max=-1)
    versions = [kept.write(sink, number, small=small) for number in range(LAST + 1)]
    return kept, sink, versions


@pytest.fixture(scope="module")
def outputs(spark, tmp_path_factory):
    """Each output is written when a test asks for it first: tests run in any order."""
    return functools.cache(
        lambda name, small: (*written(name, small, spark, tmp_path_factory.mktemp(name)), small)
    )


@pytest.fixture(params=WAYS)
def output(request, outputs):
    """What a sink has written; a test that changes it works on a copy."""
    return outputs(*request.param)


def only(*names):
    """The outputs of these sinks; what opening refuses does not depend on the way of writing."""
    ways = {one.values[0][0]: one for one in WAYS if one.values[0][0] in names}
    return pytest.mark.parametrize("output", ways.values(), indirect=True)


@pytest.mark.rule(
    "sink-changelog", "sink-mirror", "sink-history", "sink-parquet", "sink-transactions",
    "sink-parquet-transactions", "sink-datastream-files", "sink-changelog-by-key",
    "sink-mirror-by-key", "sink-parquet-by-key", "sink-iceberg-changelog", "sink-iceberg-mirror",
    "sink-function-commit", "sink-function-key",
)  # fmt: skip
def test_each_change_is_there_once_and_in_order_however_often_it_is_written(output):
    kept, sink, versions, small = output
    assert kept.found() == expected(kept.name)
    if kept.name in (*VERSIONED, *KEYED):  # an idle release has the versions before it
        before, idle = ({one: v.version for one, v in versions[n].items()} for n in (1, 2))
        assert idle == before
    assert kept.write(sink, 1, small=small) == versions[1]
    # As after a kill: a new process, which may write in the other way.
    restarted = kept.open(small=not small, release_max=LAST)
    assert kept.write(restarted, LAST, small=not small) == versions[LAST]
    assert kept.found() == expected(kept.name)
    if kept.name in (*DELTA[1:], "iceberg_mirror"):
        assert set(kept.aside()) == ASIDE
        assert len(kept.aside()) == 1


@only(*VERSIONED)
def test_a_release_is_read_at_its_versions(output):
    kept, _, versions, _ = output
    for number in range(LAST):
        assert kept.found(versions[number]) == expected(kept.name, number)


@only(*DELTA, *KEYED, "transactions")
def test_tables_need_the_oldest_versions_of_delta_and_no_feature(output):
    """Every reader and writer of Delta takes them: BigQuery's, Snowflake's, Trino's."""
    kept, _, _, _ = output
    logs = list(Path(kept.kit.output).rglob("_delta_log"))
    assert logs
    for log in logs:
        protocol = deltalake.DeltaTable(log.parent).protocol()
        assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)
        assert not protocol.reader_features
        assert not protocol.writer_features


@only(*OWNED)
def test_another_query_and_a_checkpoint_behind_are_refused(output):
    kept, _, _, small = output
    kept.open(small=small, release_max=LAST)
    if kept.name == "datastream_files":
        pytest.skip("its records name no query: see tests/unit")
    other = r"another (writer|query)"
    with pytest.raises(ConfigError, match=other):
        kept.open(small=small, query_id="query-2", release_max=LAST)
    behind = r"later (release|batch)|ahead of the checkpoint"
    with pytest.raises(ConfigError, match=behind):
        kept.open(small=small, release_max=LAST - 1)
    # With the restored checkpoint it goes on.
    kept.write(kept.open(small=small, release_max=LAST), LAST, small=small)
    assert kept.found() == expected(kept.name)


def changed_type():
    topics = {ACCOUNTS: Topic(ACCOUNTS, {4: COLUMNS | {"balance": "FLOAT64"}}, ["id"])}
    insert = Change("INSERT", {"id": 8}, {"owner": "o", "balance": 1.5}, us=9_000)
    return topics, [(ACCOUNTS, insert)]


@only(*DELTA, *KEYED, "iceberg_changelog", "iceberg_mirror")
def test_a_changed_type_is_refused_by_name_and_a_new_output_begins_with_it(output, tmp_path):
    kept, sink, _, small = output
    with pytest.raises(SchemaError, match=r"balance'.*a new --output"):
        kept.write(sink, LAST + 1, small=small, other=changed_type())
    assert kept.found() == expected(kept.name)
    if kept.name == "changelog":
        new = KeptSink(kept.name, kept.kit.spark, tmp_path)
        new.write(new.open(small=small), LAST + 1, small=small, other=changed_type())
        (row,) = new.delta("changelog/accounts")
        assert row["new_values"]["balance"] == 1.5


@only("changelog", "history", "transactions", "mirror_by_key")
def test_a_table_that_was_deleted_is_missed_and_not_created_again(output, tmp_path):
    kept, _, versions, small = output
    copied = KeptSink(kept.name, kept.kit.spark, tmp_path)
    shutil.copytree(kept.kit.output, copied.kit.output, dirs_exist_ok=True)
    named = {table: {kept.name: version} for table, version in versions[LAST].items()}
    write_manifest(copied.output, Manifest(LAST, "query-1", LAST, 0, 9, 4, named))
    sink = copied.open(small=small)
    folder = Path(copied.kit.output, versions[LAST][ORDERS].path)
    folder.rename(tmp_path / "elsewhere")
    with pytest.raises(TableMissing, match=kept.name):
        copied.open(small=small)
    if kept.name != "transactions":
        with pytest.raises(TableMissing, match=ORDERS):
            copied.write(sink, LAST, small=small)
    assert not folder.exists()
    (tmp_path / "elsewhere").rename(folder)
    copied.write(copied.open(small=small), LAST, small=small)
    assert copied.found() == expected(kept.name)


@only(*FOLDERS)
def test_a_folder_that_is_whole_is_left_alone_and_half_of_one_is_written_again(output):
    kept, _, _, small = output

    def folders():
        return {one.parent: set(one.parent.iterdir()) for one in root.rglob("_SUCCESS")}

    root = Path(kept.kit.output, kept.name)
    before = folders()
    half = max(before)
    (half / "_SUCCESS").unlink()
    for way in (not small, small):
        kept.write(kept.open(small=way), LAST, small=way)
    after = folders()
    assert after.keys() == before.keys()
    assert {path for path in before if before[path] != after[path]} <= {half}
    assert kept.found() == expected(kept.name)


@pytest.mark.parametrize("name", ["parquet", "datastream_files"])
def test_a_run_that_was_replaced_writes_nothing(spark, tmp_path, name):
    kept = KeptSink(name, spark, tmp_path)
    sink = kept.open()
    Storage(spark, kept.kit.output).take()
    with pytest.raises(WriterReplaced):
        kept.write(sink, 0, small=True)
    assert not [
        one for one in Path(kept.kit.output).rglob("*") if one.suffix in {".avro", ".parquet"}
    ]


class Killed(BaseException):
    """As a kill: nothing catches it."""


BOTH = (False, True)
STEPS = {
    # (sink, small): what is done within a release, and which call of it is killed
    ("changelog", True): [(DirectTable, "append", 0), (DirectTable, "append", 1)],
    ("changelog", False): [(SinkTables, "append", 0)],
    ("mirror", True): [
        (DirectTable, "merge", 0), (DirectTable, "merge", 1), (DirectTable, "append", 0),
        (SinkTables, "prepare", 2),
    ],
    ("mirror", False): [(mirror, "_merge", 0), (mirror, "_merge", 1), (SinkTables, "append", 0)],
    ("history", True): [
        (DirectTable, "merge", 0), (DirectTable, "append", 0), (SinkTables, "prepare", 2),
    ],
    ("history", False): [(history, "merge_staged", 0), (SinkTables, "append", 0)],
    ("transactions", False): [(SinkTables, "append", 0)],
    ("parquet", True): [(Storage, "write", 1), (Storage, "write", 2)],
    ("changelog_by_key", False): [(SinkTables, "append", 0), (SinkTables, "append", 1)],
    ("mirror_by_key", False): [(DeltaMirrorByKeySink, "_merge", 0)],
    ("iceberg_changelog", False): [(JavaTable, "staged", 0), (JavaTable, "publish", 0)],
    ("iceberg_mirror", False): [
        (JavaTable, "staged", 1), (JavaTable, "publish", 0), (JavaTable, "publish", 1),
        (JavaTable, "publish", 2),
    ],
}  # fmt: skip
PER_MERGE = {
    ("changelog", True, "append", 0, True),
    ("mirror", True, "merge", 0, True),
    ("mirror", False, "_merge", 0, True),
    ("history", True, "append", 0, True),
    ("history", False, "merge_staged", 0, False),
    ("parquet", True, "write", 1, True),
    ("changelog_by_key", False, "append", 0, True),
    ("mirror_by_key", False, "_merge", 0, True),
    ("iceberg_mirror", False, "publish", 0, True),
}
"""A third of the kills, of which those of `QUICK` are not `slow`; the others are `deep`."""


def when(kill, way):
    """The mark that says which lane runs a kill."""
    if kill not in PER_MERGE:
        return pytest.mark.deep
    return () if way in QUICK else pytest.mark.slow


KILLS = [
    pytest.param(
        name, small, owner, step, call, after,
        id=f"{name}-{'small' if small else 'large'}-{'after' if after else 'before'} {step} {call}",
        marks=when((name, small, step, call, after), (name, small)),
    )
    for (name, small), steps in STEPS.items()
    for owner, step, call in steps
    for after in BOTH
]  # fmt: skip


def killing(monkeypatch, owner, name, *, call, after):
    """Raise Killed before or after the n-th call."""
    method, calls = getattr(owner, name), itertools.count()

    def killed(*args, **named):
        is_due = next(calls) == call
        if is_due and not after:
            raise Killed
        result = method(*args, **named)
        if is_due:
            raise Killed
        return result

    monkeypatch.setattr(owner, name, killed)


@pytest.mark.rule(
    "sink-changelog", "sink-mirror", "sink-history", "sink-parquet", "sink-transactions",
    "sink-changelog-by-key", "sink-mirror-by-key", "sink-iceberg-changelog", "sink-iceberg-mirror",
)  # fmt: skip
@pytest.mark.parametrize(("name", "small", "owner", "step", "call", "after"), KILLS)
def test_a_kill_at_a_step_is_made_good_by_either_way(
    spark, tmp_path, monkeypatch, *, name, small, owner, step, call, after
):
    if name.startswith("iceberg"):
        require_iceberg(spark)
    kept = KeptSink(name, spark, tmp_path)
    sink = kept.open(small=small, release_max=-1)
    kept.write(sink, 0, small=small)
    with monkeypatch.context() as patch:
        killing(patch, owner, step, call=call, after=after)
        with pytest.raises(Killed):
            kept.write(sink, 1, small=small)
    kept.write(kept.open(small=not small), 1, small=not small)
    assert kept.found() == expected(name, 1)
    if name in (*DELTA[1:], "iceberg_mirror"):
        assert kept.aside() == [*ASIDE]
    if name in (*DELTA, *KEYED, "transactions"):
        for log in Path(kept.kit.output).rglob("_delta_log"):
            commits = [
                one.get("userMetadata") for one in deltalake.DeltaTable(log.parent).history()
            ]
            assert len(commits) == len(set(commits))
