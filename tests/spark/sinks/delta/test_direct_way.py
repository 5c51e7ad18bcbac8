"""Both ways of writing a release leave the same tables, and each goes on after the other."""

from __future__ import annotations

import copy
import itertools
import math
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from tests.topics import Change, Topic
from tidegate.spark_consumer.sinks.delta import mirror as mirror_module
from tidegate.spark_consumer.sinks.delta.changelog import DeltaChangelogSink
from tidegate.spark_consumer.sinks.delta.commit_log import Commit
from tidegate.spark_consumer.sinks.delta.direct_place import DirectPlace
from tidegate.spark_consumer.sinks.delta.direct_table import DirectTable
from tidegate.spark_consumer.sinks.delta.direct_way import DirectWay, find_direct_way
from tidegate.spark_consumer.sinks.delta.mirror import DeltaMirrorSink
from tidegate.spark_consumer.sinks.delta.tables import SinkTables
from tidegate.spark_consumer.sinks.session_settings import session_settings

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FOLDERS = ("changelog", "mirror", "incomplete")
COLUMNS = {
    "id": "STRING(MAX)",
    "n": "NUMERIC",
    "i": "INT64",
    "f32": "FLOAT32",
    "f": "FLOAT64",
    "b": "BOOL",
    "raw": "BYTES(MAX)",
    "d": "DATE",
    "At": "TIMESTAMP",
    "j": "JSON",
    "u": "UUID",
    "action": "STRING(MAX)",
    "strings": "ARRAY<STRING(MAX)>",
    "numbers": "ARRAY<NUMERIC>",
    "times": "ARRAY<TIMESTAMP>",
    "days": "ARRAY<DATE>",
    "floats": "ARRAY<FLOAT32>",
}
FIRST, LAST = datetime(1, 1, 1, 0, 0, 0, 1, UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)
FULL = {
    "i": -(2**63),
    "f32": 1.5,
    "f": math.pi,
    "b": True,
    "raw": b"\x00\xff",
    "d": date(1582, 10, 10),
    "At": FIRST,
    "j": '{"a": [1, null]}',
    "u": uuid.UUID(int=7),
    "action": "delete",
    "strings": ["a", None, ""],
    "numbers": [Decimal("0.000000001"), None],
    "times": [LAST, None, FIRST],
    "days": [date(1, 1, 1), date(9999, 12, 31)],
    "floats": [math.inf, -0.0],
}
EXTREME = FULL | {
    "i": 2**63 - 1,
    "f32": math.nan,
    "f": -math.inf,
    "At": LAST,
    "d": date(9999, 12, 31),
    "raw": b"",
    "strings": [],
    "j": "\U0001f600" * 40,
}
NOTHING = dict.fromkeys(FULL)


def key(number, text="k"):
    return {"n": None if number is None else Decimal(number), "id": text}


KEYS = [
    key("1.000000001"),
    key("12345678901234567890123456789.123456789"),
    key(None),
    key("-7", None),
    key("8", "\U0001f600" * 35),
]


def without(columns, *names):
    return {name: kind for name, kind in columns.items() if name not in names}


def history():
    """Releases as (topic, changes): every type, every kind of change, and changing columns."""
    later = COLUMNS | {"added": "TIMESTAMP"}
    versions = {1: COLUMNS, 2: later, 3: without(later, "f", "times"), 4: later}
    stages = [{n: versions[n] for n in range(1, newest + 1)} for newest in (1, 1, 2, 3, 4, 4)]
    topics = [Topic("t", stage, ["n", "id"]) for stage in stages]
    parts = [
        [("INSERT", one, FULL if n % 2 else EXTREME, {}) for n, one in enumerate(KEYS)],
        [
            ("UPDATE", KEYS[0], {"i": 5, "At": None}, {}),
            ("UPDATE", KEYS[0], {"action": "patch"}, {}),
            ("DELETE", KEYS[1], None, {"old": FULL}),
            ("DELETE", KEYS[2], None, {}),
            ("INSERT", KEYS[2], NOTHING, {}),
            ("UPDATE", KEYS[2], {"raw": b"x"}, {"is_older": True}),
            ("UPDATE", key("99"), {"i": 1}, {}),
            ("UPDATE", key("99"), {"i": 2}, {}),
            ("UPDATE", key(None, None), {"i": 3}, {}),
            ("UPDATE", key("77"), {"i": 3}, {}),
            ("DELETE", key("77"), None, {}),
            ("DELETE", key("78"), None, {}),
            ("UPDATE", key("78"), {"i": 4}, {}),
        ],
        [
            ("UPDATE", KEYS[0], {"added": LAST}, {}),
            ("INSERT", key("50"), FULL, {"value_id": 1}),
            ("UPDATE", KEYS[3], {"f": -0.0}, {"value_id": 1, "old": {"f": 1.0}}),
        ],
        [("UPDATE", KEYS[0], {"i": 6}, {}), ("INSERT", key("51"), without(FULL, "f", "times"), {})],
        [("UPDATE", key("51"), {"f": 2.5, "times": [LAST]}, {}), ("DELETE", KEYS[4], None, {})],
        [("DELETE", key("1000"), None, {})],
    ]
    return [
        (
            topic,
            [Change(mod, k, new, us=n + 1, **more) for n, (mod, k, new, more) in enumerate(one)],
        )
        for topic, one in zip(topics, parts, strict=True)
    ]


class Output:
    """The two sinks over one folder; `open` does what a restart does."""

    def __init__(self, kit, folder):
        self.kit, self.folder = kit, str(folder)
        self.open()

    def open(self):
        direct = DirectWay(DirectPlace(self.folder))
        self.sinks = [
            sink(self.kit.spark, self.folder, direct=direct)
            for sink in (DeltaChangelogSink, DeltaMirrorSink)
        ]
        for sink in self.sinks:
            sink.open(query_id="query-1", release_max=100)

    def write(self, number, topic, changes, *, small):
        topic = copy.deepcopy(topic)  # it counts offsets, which are the same in a replay
        pairs = [(topic, change) for change in changes]
        release = self.kit.release(number, pairs, topics=[topic], small=small)
        return [sink.write(release) for sink in self.sinks]

    def frame(self, folder):
        return self.kit.spark.read.format("delta").load(f"{self.folder}/{folder}/t")

    def rows(self, folder, version):
        """Rows of a version as text, in which NaN equals NaN; read without Spark."""
        import deltalake

        table = deltalake.DeltaTable(f"{self.folder}/{folder}/t", version=version)
        return sorted(map(repr, table.to_pyarrow_table().to_pylist()))


def assert_equal(one, other):
    assert one.schema == other.schema
    assert one.exceptAll(other).count() == 0
    assert other.exceptAll(one).count() == 0


@pytest.fixture
def direct_commits(monkeypatch):
    """Names of the methods by which delta-rs was called."""
    called = []
    for name in ("append", "merge"):
        method = getattr(DirectTable, name)

        def watched(self, *args, name=name, method=method, **named):
            called.append(name)
            return method(self, *args, **named)

        monkeypatch.setattr(DirectTable, name, watched)
    return called


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_both_ways_and_any_mix_leave_the_same_tables(kit, tmp_path, direct_commits):
    ways = {
        "spark": itertools.repeat(False),
        "direct": itertools.repeat(True),
        "mixed": itertools.cycle([True, False]),
    }
    outputs = {name: Output(kit, tmp_path / name) for name in ways}
    for number, (topic, changes) in enumerate(history()):
        written = {
            name: outputs[name].write(number, topic, changes, small=next(ways[name]))
            for name in ways
        }
        for at, folder in enumerate(("changelog", "mirror")):
            of_way = {name: versions[at]["t"] for name, versions in written.items()}
            found = {
                name: outputs[name].rows(folder, version.version)
                for name, version in of_way.items()
            }
            assert found["direct"] == found["mixed"] == found["spark"]
            assert len({version.rows for version in of_way.values()}) == 1
    for name, folder in itertools.product(("direct", "mixed"), FOLDERS):
        assert_equal(outputs[name].frame(folder), outputs["spark"].frame(folder))
    assert [output.sinks[1].incomplete_changes for output in outputs.values()] == [4, 4, 4]
    # Of one output all releases, of another every second one; the last one changes no row, and
    # that before the last is the other one that holds back nothing.
    assert direct_commits.count("merge") == 6 + 3
    assert direct_commits.count("append") == 6 + 1 + 3
    # One file for each release, and one without rows where a column was added.
    assert len(list((tmp_path / "direct/changelog/t").glob("*.parquet"))) == 6 + 1


@pytest.mark.parametrize("is_direct_first", [True, False])
def test_each_way_takes_the_others_release_for_written(kit, tmp_path, is_direct_first):
    (topic, inserts), (_, changes), *_ = history()
    output = Output(kit, tmp_path / "out")
    for number, part in enumerate((inserts, changes)):
        first = output.write(number, topic, part, small=is_direct_first)
        for small in (True, False):
            output.open()
            assert output.write(number, topic, part, small=small) == first
    for folder in FOLDERS:
        history_of = kit.spark.sql(f"DESCRIBE HISTORY delta.`{output.folder}/{folder}/t`").collect()
        metadata = [row["userMetadata"] for row in history_of]
        assert len(metadata) == len(set(metadata))


class Killed(Exception):
    """Stands for a kill."""


STEPS = {
    "direct append": (DirectTable, "append"),
    "direct merge": (DirectTable, "merge"),
    "append by Spark": (SinkTables, "append"),
    "MERGE by Spark": (mirror_module, "_merge"),
    "preparation": (SinkTables, "prepare"),
}


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


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("small", "step", "call"),
    [
        # The appends are those to the changelog and to the incomplete table.
        pytest.param(True, "direct append", 0, marks=pytest.mark.deep),
        (True, "direct merge", 0),
        pytest.param(True, "direct append", 1, marks=pytest.mark.deep),
        pytest.param(True, "preparation", 2, marks=pytest.mark.deep),
        pytest.param(False, "append by Spark", 0, marks=pytest.mark.deep),
        (False, "MERGE by Spark", 0),
        pytest.param(False, "append by Spark", 1, marks=pytest.mark.deep),
    ],
)
def test_a_kill_before_or_after_a_step_is_made_good_by_either_way(
    kit, tmp_path, monkeypatch, *, small, step, call
):
    topic = Topic("t", {1: {"id": "INT64", "a": "INT64"}}, ["id"])
    inserts = [Change("INSERT", {"id": n}, {"a": n}, us=n + 1) for n in range(3)]
    changes = [
        Change("UPDATE", {"id": 0}, {"a": -1}, us=1),
        Change("DELETE", {"id": 1}, None, us=2),
        Change("UPDATE", {"id": 9}, {"a": 9}, us=3),
    ]
    for after, replay_small in itertools.product((False, True), (True, False)):
        output = Output(kit, tmp_path / f"{after}-{replay_small}")
        output.write(0, topic, inserts, small=True)
        with monkeypatch.context() as patched:
            killing(patched, *STEPS[step], call=call, after=after)
            with pytest.raises(Killed):
                output.write(1, topic, changes, small=small)
        output.open()
        versions = output.write(1, topic, changes, small=replay_small)
        changelog, mirror = (versions[at]["t"].version for at in (0, 1))
        assert len(output.rows("changelog", changelog)) == 6
        assert output.rows("mirror", mirror) == ["{'id': 0, 'a': -1}", "{'id': 2, 'a': 2}"]
        assert len(output.rows("incomplete", None)) == 1


def test_two_writers_of_one_release_commit_it_once(kit, tmp_path):
    from deltalake.exceptions import DeltaError

    (topic, inserts), *_ = history()
    output = Output(kit, tmp_path / "out")
    output.write(0, topic, inserts, small=True)
    commit = Commit("query-1", "changelog", 1, 2_000_000)
    path = f"{output.folder}/changelog/t"
    former, younger = DirectTable(path), DirectTable(path)
    rows = former.rows([{"release": 1, "ordinal": 0}], former.schema.names)
    younger.append(rows, commit=commit)
    with pytest.raises(DeltaError, match="oncurrent"):
        former.append(rows, commit=commit)
    # A handle that sees the commit does nothing.
    DirectTable(path).append(rows, commit=commit)
    assert output.frame("changelog").where("release = 1").count() == 1


def test_a_mirror_with_timestamps_of_96_bits_is_left_to_spark(kit, tmp_path, direct_commits):
    topic = Topic("t", {1: {"id": "INT64", "at": "TIMESTAMP", "a": "INT64"}}, ["id"])
    output = Output(kit, tmp_path / "out")
    with session_settings(kit.spark, {"spark.sql.parquet.outputTimestampType": "INT96"}):
        insert = Change("INSERT", {"id": 1}, {"at": FIRST, "a": 1}, us=1)
        output.write(0, topic, [insert], small=False)
    output.write(1, topic, [Change("UPDATE", {"id": 1}, {"a": 2}, us=1)], small=True)
    assert direct_commits == ["append"]
    row = output.frame("mirror").selectExpr("cast(at as string)", "a").collect()
    assert [tuple(one) for one in row] == [("0001-01-01 00:00:00.000001", 2)]


@pytest.mark.parametrize("kind", ["FLOAT64", "FLOAT32"])
def test_keys_that_are_floating_point_numbers_are_merged_by_spark(
    kit, tmp_path, direct_commits, kind
):
    topic = Topic("t", {1: {"id": kind, "a": "INT64"}}, ["id"])
    output = Output(kit, tmp_path / "out")
    output.write(0, topic, [Change("INSERT", {"id": math.nan}, {"a": 1}, us=1)], small=True)
    output.write(1, topic, [Change("UPDATE", {"id": math.nan}, {"a": 2}, us=1)], small=True)
    assert direct_commits == ["append", "append"]
    assert [row["a"] for row in output.frame("mirror").collect()] == [2]


def test_a_table_with_a_feature_is_left_to_spark(kit, tmp_path, direct_commits):
    topic = Topic("t", {1: {"id": "INT64", "a": "INT64"}}, ["id"])
    output = Output(kit, tmp_path / "out")
    output.write(0, topic, [Change("INSERT", {"id": 1}, {"a": 1}, us=1)], small=True)
    for folder in ("changelog", "mirror"):
        kit.spark.sql(
            f"ALTER TABLE delta.`{output.folder}/{folder}/t` "
            "SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
        )
    del direct_commits[:]
    output.write(1, topic, [Change("UPDATE", {"id": 1}, {"a": 2}, us=1)], small=True)
    assert direct_commits == []
    assert [row["a"] for row in output.frame("mirror").collect()] == [2]


def test_a_large_mirror_is_left_to_spark(kit, tmp_path, direct_commits, monkeypatch):
    monkeypatch.setattr("tidegate.spark_consumer.sinks.delta.direct_way._MIRROR_BYTES_MAX", 100)
    topic = Topic("t", {1: {"id": "INT64", "a": "INT64"}}, ["id"])
    output = Output(kit, tmp_path / "out")
    output.write(0, topic, [Change("INSERT", {"id": 1}, {"a": 1}, us=1)], small=True)
    output.write(1, topic, [Change("UPDATE", {"id": 1}, {"a": 2}, us=1)], small=True)
    assert direct_commits == ["append", "merge", "append"]
    assert [row["a"] for row in output.frame("mirror").collect()] == [2]


def test_updates_of_unknown_rows_go_aside_although_spark_may_not_merge(kit, tmp_path):
    topic = Topic("t", {1: {"id": "INT64", "a": "INT64"}}, ["id"])
    output = Output(kit, tmp_path / "out")
    release = [Change("UPDATE", {"id": 1}, {"a": 2}, us=1), Change("UPDATE", {"id": 2}, {}, us=2)]
    output.write(0, topic, release, small=True)
    assert output.frame("incomplete").count() == 2
    assert Path(output.folder, "mirror/t").exists()
    output.open()
    output.write(0, topic, release, small=False)
    assert output.frame("incomplete").count() == 2


@pytest.mark.parametrize(
    ("output", "rows_max", "is_found"),
    [
        ("file:/data/out", 10, True),
        ("file:///data/out", 10, True),
        ("/data/a b/out", 10, True),
        ("/data/out", 0, False),
        ("s3a://bucket/out", 10, False),
        ("gs://bucket/out", 10, False),
        ("file:/data/50%25", 10, False),
    ],
)
def test_the_way_is_chosen_by_the_place_of_the_output(output, rows_max, is_found):
    assert (find_direct_way(output, rows_max=rows_max) is not None) is is_found
