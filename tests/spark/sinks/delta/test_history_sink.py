"""The history: at any time one row of each key that was alive, whatever was written how."""

from __future__ import annotations

import copy
import itertools
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import deltalake
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tests.spark.sinks.delta.test_direct_way import Killed, killing
from tests.spark.sinks.delta.test_direct_way import history as every_type
from tests.topics import Change, Topic
from tidegate.schemas.errors import ConfigError, ExitCode, SchemaError
from tidegate.spark_consumer.errors import FilteredMirror, ForeignChange
from tidegate.spark_consumer.sinks.delta import history_sink as module
from tidegate.spark_consumer.sinks.delta.adoption import adopt_changes
from tidegate.spark_consumer.sinks.delta.changelog import DeltaChangelogSink
from tidegate.spark_consumer.sinks.delta.direct_place import DirectPlace
from tidegate.spark_consumer.sinks.delta.direct_table import DirectTable
from tidegate.spark_consumer.sinks.delta.direct_way import DirectWay
from tidegate.spark_consumer.sinks.delta.history_sink import DeltaHistorySink
from tidegate.spark_consumer.sinks.delta.mirror import DeltaMirrorSink
from tidegate.spark_consumer.sinks.delta.tables import SinkTables
from tidegate.spark_consumer.sinks.port import Merge, MergingSink
from tidegate.spark_consumer.sinks.session_settings import session_settings

pytestmark = [pytest.mark.spark, pytest.mark.slow]

COLUMNS = {"id": "INT64", "a": "STRING(MAX)", "b": "INT64"}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BOTH = pytest.mark.parametrize("small", [False, True], ids=["spark", "delta-rs"])


def microseconds(time):
    return None if time is None else (time - EPOCH) // timedelta(microseconds=1)


class Output:
    """The sinks over one folder; `open` does what a restart does."""

    def __init__(self, kit, folder, *, accepted=()):
        self.kit, self.folder, self.accepted = kit, str(folder), accepted
        self.open()

    def open(self, *, release_max=100, query_id="query-1"):
        spark, direct = self.kit.spark, DirectWay(DirectPlace(self.folder))
        self.changelog = DeltaChangelogSink(spark, self.folder, direct=direct)
        self.mirror = DeltaMirrorSink(spark, self.folder, direct=direct, accepted=self.accepted)
        self.sink = DeltaHistorySink(spark, self.folder, direct=direct, accepted=self.accepted)
        # Releases that are not small are merged as where there is no delta-rs.
        self.by_spark = DeltaHistorySink(spark, self.folder, accepted=self.accepted)
        for sink in (self.changelog, self.mirror, self.sink, self.by_spark):
            sink.open(query_id=query_id, release_max=release_max)

    def release(self, number, topic, changes, *, small):
        topic = copy.deepcopy(topic)  # it counts offsets, which are the same in a replay
        pairs = [(topic, change) for change in changes]
        return self.kit.release(number, pairs, topics=[topic], small=small)

    def write(self, number, topic, changes, *, small=False):
        return self.sink.write(self.release(number, topic, changes, small=small))

    def append(self, number, topic, changes, *, small=True):
        return self.changelog.write(self.release(number, topic, changes, small=small))

    def merge(self, topic, after, through, *, small):
        schemas = {topic.topic: topic.topic_schemas()}
        sink = self.sink if small else self.by_spark
        through_us = (through + 1) * 1_000_000
        return sink.merge(Merge("query-1", through, after, through, through_us, schemas))

    def read(self, folder="history", version=None, table="t"):
        """Rows with times in microseconds; read without Spark."""
        path = Path(self.folder, folder, table)
        if not path.exists():
            return []
        rows = deltalake.DeltaTable(path, version=version).to_pyarrow_table().to_pylist()
        for row in rows:
            for name in ("valid_from", "valid_to"):
                if name in row:
                    row[name] = microseconds(row[name])
        return rows

    def texts(self, folder="history", version=None, table="t"):
        """Rows as text, in which NaN equals NaN, without regard to the order of columns."""
        rows = self.read(folder, version, table)
        return sorted(repr(sorted(row.items())) for row in rows)

    def versions(self, *names, table="t"):
        """Versions as tuples: from, to, and the named columns."""
        rows = self.read(table=table)
        assert all(row["is_current"] == (row["valid_to"] is None) for row in rows)
        found = [
            (row["valid_from"], row["valid_to"], *(row[name] for name in names)) for row in rows
        ]
        return sorted(found, key=str)

    def set_aside(self, table="t"):
        rows = self.read("history_incomplete", table=table)
        return sorted((row["release"], row["ordinal"]) for row in rows)


@pytest.fixture
def ways(monkeypatch):
    """Names of the ways in which histories were merged."""
    called = []
    merge, by_spark = DirectTable.merge, module.merge_staged
    monkeypatch.setattr(
        DirectTable, "merge", lambda *a, **b: (called.append("delta-rs"), merge(*a, **b))[1]
    )
    monkeypatch.setattr(
        module, "merge_staged", lambda *a, **b: (called.append("spark"), by_spark(*a, **b))[1]
    )
    return called


def insert(us, key=1, **new):
    return Change("INSERT", {"id": key}, {"a": None, "b": None} | new, us=us)


def update(us, key=1, **new):
    return Change("UPDATE", {"id": key}, new, us=us, every=False)


def delete(us, key=1):
    return Change("DELETE", {"id": key}, None, us=us)


@pytest.fixture
def topic():
    return Topic("t", {1: COLUMNS}, ["id"])


@pytest.fixture
def output(kit, tmp_path):
    return Output(kit, tmp_path / "out")


def numbered(changes):
    """Give changes of one commit timestamp their order: it is that of the list."""
    for n, change in enumerate(changes):
        change.sequence = n
    return changes


@BOTH
def test_versions_begin_and_end_at_commit_times(output, topic, ways, small):
    assert isinstance(output.sink, MergingSink)
    output.write(0, topic, [insert(10, a="x", b=1), insert(11, 2, a="y")], small=small)
    output.write(1, topic, [update(20, b=2), update(30, a=None), delete(40, 2)], small=small)
    output.write(2, topic, [delete(50), insert(60, a="z")], small=small)
    assert output.versions("id", "a", "b") == [
        (10, 20, 1, "x", 1),
        (11, 40, 2, "y", None),
        (20, 30, 1, "x", 2),
        (30, 50, 1, None, 2),
        (60, None, 1, "z", None),
    ]
    assert ways == ["delta-rs" if small else "spark"] * 3
    assert output.set_aside() == []


@pytest.mark.rule("sink-history")
@BOTH
def test_changes_of_one_commit_time_make_one_version_and_none_of_no_duration(output, topic, small):
    one_time = numbered(
        [
            insert(10, 1, a="first"),
            update(10, 1, a="second"),
            insert(10, 2, a="gone"),
            delete(10, 2),
            insert(10, 3, a="old"),
            delete(10, 3),
            insert(10, 3, b=7),
        ]
    )
    output.write(0, topic, one_time, small=small)
    assert output.versions("id", "a", "b") == [
        (10, None, 1, "second", None),
        (10, None, 3, None, 7),
    ]
    later = numbered([update(20, 1, b=1), update(20, 1, b=2), delete(20, 3), insert(20, 3, b=8)])
    ended = numbered([update(30, 1, b=3), delete(30, 1), insert(30, 3, b=9), delete(30, 3)])
    output.write(1, topic, [*later, *ended], small=small)
    assert output.versions("id", "a", "b") == [
        (10, 20, 1, "second", None),
        (10, 20, 3, None, 7),
        (20, 30, 1, "second", 2),
        (20, 30, 3, None, 8),
    ]


@BOTH
def test_a_version_that_the_next_release_ends_at_its_own_time_goes(output, topic, small):
    output.write(0, topic, [insert(10, a="x"), update(20, a="y"), insert(20, 2)], small=small)
    output.write(1, topic, [update(20, b=1), delete(20, 2)], small=small)
    assert output.versions("id", "a", "b") == [(10, 20, 1, "x", None), (20, None, 1, "y", 1)]


@BOTH
def test_what_an_update_did_not_capture_is_taken_from_the_version_before_it(output, topic, small):
    output.write(0, topic, [insert(10, a="x", b=1), insert(10, 2, a="x", b=1)], small=small)
    changes = [update(20, a=None), update(30, b=None), update(40, a="z"), delete(50, 2)]
    output.write(1, topic, [*changes, insert(60, 2), update(70, 2, b=5)], small=small)
    assert [row for row in output.versions("id", "a", "b") if row[2] == 1] == [
        (10, 20, 1, "x", 1),
        (20, 30, 1, None, 1),
        (30, 40, 1, None, None),
        (40, None, 1, "z", None),
    ]
    # An INSERT is the whole row: nothing of the version before it stays.
    assert [row for row in output.versions("id", "a", "b") if row[2] == 2] == [
        (10, 50, 2, "x", 1),
        (60, 70, 2, None, None),
        (70, None, 2, None, 5),
    ]


@BOTH
def test_updates_of_unknown_rows_go_aside_once_and_open_nothing(output, topic, small):
    changes = [
        update(10, 7, b=1),
        insert(11, 1),
        update(12, 7, b=2),
        delete(13, 7),
        update(14, 7, b=3),
        insert(15, 7, a="x"),
        update(16, 7, b=4),
        delete(17, 9),
    ]
    with capture_logs() as lines:
        output.write(0, topic, changes, small=small)
    assert output.versions("id", "a", "b") == [
        (11, None, 1, None, None),
        (15, 16, 7, "x", None),
        (16, None, 7, "x", 4),
    ]
    assert output.set_aside() == [(0, 0), (0, 2), (0, 4)]
    events = [line for line in lines if line["event"].startswith("updates of rows")]
    assert [(line["event"], line["changes"]) for line in events] == [
        ("updates of rows that the history lacks", 3)
    ]
    assert output.sink.incomplete_changes == 3
    for again in (True, False):
        output.open()
        output.write(0, topic, changes, small=again)
        assert len(output.set_aside()) == len(output.read()) == 3


@BOTH
def test_only_updates_of_unknown_rows(output, topic, ways, small):
    first = output.write(0, topic, [update(10, 7, b=1)], small=small)["t"]
    output.open()
    assert output.write(0, topic, [update(10, 7, b=1)], small=not small)["t"] == first
    assert (output.read(), output.set_aside()) == ([], [(0, 0)])


@BOTH
def test_tables_of_one_release_are_merged_each_by_itself(kit, output, topic, small):
    other = kit.Topic("other", {1: COLUMNS}, ["id"])
    quiet = kit.Topic("quiet", {1: COLUMNS}, ["id"])
    known = [topic, other, quiet]
    first = [(topic, insert(10, a="x")), (other, insert(10, a="y")), (other, update(20, 9, b=1))]
    second = [(topic, update(30, b=1)), (other, delete(30)), (topic, update(40, 9, b=1))]
    for number, changes in enumerate((first, second)):
        versions = output.sink.write(kit.release(number, changes, topics=known, small=small))
        assert {name: one.path for name, one in versions.items()} == {
            name: f"history/{name}" for name in ("t", "other", "quiet")
        }
    assert output.versions("a", "b") == [(10, 30, "x", None), (30, None, "x", 1)]
    assert output.versions("a", "b", table="other") == [(10, 30, "y", None)]
    assert output.versions("a", table="quiet") == []
    assert (output.set_aside(), output.set_aside("other")) == ([(1, 2)], [(0, 2)])


def test_rows_that_others_deleted_are_refused_and_after_adopt_the_history_goes_on(
    kit, output, topic
):
    output.write(0, topic, [insert(10, 1, a="x"), insert(10, 2, a="y"), update(20, 1, b=1)])
    kit.spark.sql(f"DELETE FROM delta.`{output.folder}/history/t` WHERE id = 1")
    with pytest.raises(ForeignChange, match="history/t"):
        output.write(1, topic, [insert(30, 3)])
    (adopted,) = adopt_changes(kit.spark, output.folder, query_id="query-1", release_max=100)
    assert (adopted.table, adopted.operation) == ("history/t", "DELETE")
    output.open()
    output.write(1, topic, [update(30, 1, b=2), update(30, 2, b=2), insert(40, 1, a="again")])
    assert output.versions("id", "a", "b") == [
        (10, 30, 2, "y", None),
        (30, None, 2, "y", 2),
        (40, None, 1, "again", None),
    ]
    assert output.set_aside() == [(1, 0)]


def test_versions_of_an_older_release_are_found(output, topic):
    schemas = topic.topic_schemas()
    assert output.sink.versions(0, [schemas]) == {}
    first = output.write(0, topic, [insert(10)], small=True)["t"]
    second = output.write(2, topic, [update(20, b=1)], small=True)["t"]
    assert output.sink.versions(1, [schemas]) == {"t": first}
    assert output.sink.versions(2, [schemas]) == {"t": second}
    assert len(output.read(version=first.version)) == 1


@BOTH
def test_keys_with_nulls_and_a_table_of_key_columns_only(kit, output, small):
    topic = kit.Topic("t", {1: {"id": "INT64", "k": "STRING(MAX)"}}, ["id", "k"])
    keys = [{"id": None, "k": None}, {"id": None, "k": "x"}, {"id": 1, "k": None}]
    output.write(0, topic, [kit.Change("INSERT", key, {}, us=10) for key in keys], small=small)
    changes = [kit.Change("UPDATE", keys[0], {}, us=20), kit.Change("DELETE", keys[2], us=30)]
    output.write(1, topic, changes, small=small)
    assert output.versions("id", "k") == [
        (10, 20, None, None),
        (10, 30, 1, None),
        (10, None, None, "x"),
        (20, None, None, None),
    ]


@BOTH
def test_columns_that_come_and_go(kit, output, small):
    before = kit.Topic("t", {1: COLUMNS}, ["id"])
    wider = COLUMNS | {"c": "ARRAY<INT64>"}
    after = kit.Topic("t", {1: COLUMNS, 2: wider}, ["id"])
    narrow = {name: kind for name, kind in wider.items() if name != "b"}
    last = kit.Topic("t", {1: COLUMNS, 2: wider, 3: narrow}, ["id"])
    output.write(0, before, [insert(10, a="x", b=1)], small=small)
    output.write(1, after, [update(20, c=[1, None])], small=small)
    old_writer = kit.Change("UPDATE", {"id": 1}, {"a": "z", "b": 2}, us=30, value_id=1)
    output.write(2, after, [old_writer], small=small)
    output.write(3, last, [update(40, a="w")], small=small)
    assert output.versions("a", "b", "c") == [
        (10, 20, "x", 1, None),
        (20, 30, "x", 1, [1, None]),
        (30, 40, "z", 2, [1, None]),
        (40, None, "w", 2, [1, None]),
    ]


@BOTH
def test_a_column_that_is_no_longer_watched_stays_as_it_was(kit, tmp_path, small):
    before = kit.Topic("t", {1: COLUMNS}, ["id"])
    after = kit.Topic("t", {1: COLUMNS, 2: COLUMNS}, ["id"], unwatched={2: {"b"}})
    output = Output(kit, tmp_path / "refused")
    output.write(0, before, [insert(10, a="x", b=1)], small=small)
    with pytest.raises(FilteredMirror, match="columns that the history has") as raised:
        output.write(1, after, [update(20, a="y")], small=small)
    assert raised.value.exit_code == ExitCode.USAGE
    output = Output(kit, tmp_path / "accepted", accepted=["unwatched_columns"])
    output.write(0, before, [insert(10, a="x", b=1), insert(11, 2, b=2)], small=small)
    with capture_logs() as lines:
        output.write(1, after, [update(20, a="y"), insert(21, 2, a="z")], small=small)
    assert output.versions("id", "a", "b") == [
        (10, 20, 1, "x", 1),
        (11, 21, 2, None, 2),
        (20, None, 1, "y", 1),
        (21, None, 2, "z", None),
    ]
    assert [line["event"] for line in lines if "leaves out" in line["event"]] == [
        "the history leaves out"
    ]


def test_a_changed_type_another_query_and_a_checkpoint_behind_are_refused(kit, output, topic):
    for number in range(2):
        output.write(number, topic, [insert(number + 1, number)])
    changed = kit.Topic("t", {1: COLUMNS | {"b": "FLOAT64"}}, ["id"])
    with pytest.raises(SchemaError, match=r"column='b'"):
        output.write(2, changed, [insert(9, b=1.0)])
    with pytest.raises(ConfigError, match=r"another writer.*history/t"):
        output.open(query_id="query-2")
    with pytest.raises(ConfigError, match=r"later release.*history/t"):
        output.open(release_max=0)


def test_settings_of_the_merge_do_not_stay_in_the_session(kit, output, topic):
    def current():
        found = {row["key"]: row["value"] for row in kit.spark.sql("SET").collect()}
        found.pop("spark.databricks.delta.lastCommitVersionInSession", None)
        return found

    before = current()
    output.write(0, topic, [insert(1), update(2, 9, b=1)])
    assert current() == before
    assert output.set_aside() == [(0, 1)]


@BOTH
def test_a_merge_rewrites_no_version_that_has_ended_and_writes_few_files(kit, output, topic, small):
    def files(is_current):
        folder = Path(output.folder, "history/t", f"is_current={str(is_current).lower()}")
        uris = deltalake.DeltaTable(f"{output.folder}/history/t").file_uris()
        return {Path(uri).name for uri in uris if Path(uri).parent.name == folder.name}

    with session_settings(kit.spark, {"spark.sql.shuffle.partitions": "7"}):
        output.write(0, topic, [insert(n + 1, n) for n in range(50)], small=small)
        assert (len(files(is_current=True)), len(files(is_current=False))) == (1, 0)
        ended = set()
        for number in range(1, 4):
            changes = [update(number * 100 + n, n, b=number) for n in range(0, 50, 10)]
            output.write(number, topic, changes, small=small)
            assert ended < files(is_current=False)
            ended = files(is_current=False)
            assert (len(files(is_current=True)), len(ended)) == (1, number)


class Model:
    """Every version of every key, the slow and obvious way: one change after the other."""

    def __init__(self):
        self.closed, self.current, self.lost = [], {}, []

    def apply(self, place, change):
        key = change.key["id"]
        if change.mod == "UPDATE" and key not in self.current:
            self.lost.append(place)
            return
        before = self.current.pop(key, None)
        if before is not None and before["from"] < change.us:
            self.closed.append(before | {"to": change.us})
        if change.mod != "DELETE":
            kept = before if change.mod == "UPDATE" else {"a": None, "b": None}
            row = {**kept, **change.new, "id": key, "from": change.us, "to": None}
            self.current[key] = row

    def versions(self):
        rows = [*self.closed, *self.current.values()]
        found = [tuple(row[name] for name in ("from", "to", "id", "a", "b")) for row in rows]
        return sorted(found, key=str)

    @staticmethod
    def alive(changes, at):
        """The table at a time by its changes up to then: it knows of no versions."""
        rows = {}
        for change in changes:
            key = change.key["id"]
            if change.us > at:
                continue
            if change.mod == "INSERT":
                rows[key] = {"a": None, "b": None} | change.new
            elif change.mod == "DELETE":
                rows.pop(key, None)
            elif key in rows:
                rows[key] = rows[key] | change.new
        return rows


VALUES = st.fixed_dictionaries(
    {}, optional={"a": st.sampled_from([None, "x", "y"]), "b": st.sampled_from([None, 1, 2])}
)
STEP = st.one_of(
    st.tuples(st.just("INSERT"), VALUES),
    st.tuples(st.just("UPDATE"), VALUES),
    st.tuples(st.just("UPDATE"), VALUES),
    st.tuples(st.just("DELETE"), st.none()),
)
# Each key has a history of its own; a step says how far the clock has moved before it.
HISTORIES = st.lists(
    st.lists(st.tuples(st.sampled_from([0, 0, 1, 2]), STEP), max_size=9), min_size=20, max_size=40
)


def commit_order(histories):
    """All changes in commit order; those of one commit time in the order of their keys' steps."""
    placed = []
    for key, steps in enumerate(histories):
        us = 1
        for n, (later, (mod, new)) in enumerate(steps):
            us += later
            placed.append((us, n, key, mod, new))
    placed.sort(key=lambda one: one[:3])
    return [
        Change(mod, {"id": key}, new, us=us, sequence=place, every=False)
        for place, (us, _, key, mod, new) in enumerate(placed)
    ]


PROPERTY = settings(
    max_examples=3,
    deadline=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.large_base_example,
        HealthCheck.data_too_large,
    ],
)


@pytest.mark.rule("sink-history")
@pytest.mark.timeout(900)
@PROPERTY
@given(data=st.data())
def test_at_any_time_the_history_has_the_rows_that_were_alive(kit, tmp_path, data):
    changes = commit_order(data.draw(HISTORIES))
    # Anywhere, also between two changes of one commit time.
    cuts = sorted(data.draw(st.sets(st.integers(0, len(changes)), max_size=3)))
    output = Output(kit, tmp_path / f"{len(list(tmp_path.iterdir()))}")
    model, topic = Model(), Topic("t", {1: COLUMNS}, ["id"])
    for number, (start, end) in enumerate(itertools.pairwise([0, *cuts, len(changes)])):
        part = changes[start:end]
        for place, change in enumerate(part):
            model.apply((number, place), change)
        for _ in range(1 + data.draw(st.integers(0, 1))):
            output.write(number, topic, part, small=data.draw(st.booleans()))
            if data.draw(st.booleans()):
                output.open()
        assert output.versions("id", "a", "b") == model.versions()
        assert output.set_aside() == sorted(model.lost)
    for at in range(max((one.us for one in changes), default=0) + 2):
        rows = [
            row
            for row in output.read()
            if row["valid_from"] <= at and (row["valid_to"] is None or at < row["valid_to"])
        ]
        found = {row["id"]: {"a": row["a"], "b": row["b"]} for row in rows}
        assert len(found) == len(rows)
        assert found == Model.alive(changes, at)


@pytest.mark.deep
@pytest.mark.timeout(900)
def test_both_ways_and_any_mix_leave_the_same_tables_of_every_type(kit, tmp_path, ways):
    choices = {
        "spark": itertools.repeat(False),
        "direct": itertools.repeat(True),
        "mixed": itertools.cycle([True, False]),
    }
    outputs = {name: Output(kit, tmp_path / name) for name in choices}
    for number, (topic, changes) in enumerate(every_type()):
        for change in changes:
            change.us += number * 1_000
        for name, output in outputs.items():
            small = next(choices[name])
            version = output.write(number, topic, changes, small=small)["t"].version
            if name == "spark":
                expected = output.texts(version=version)
                mirrored = output.mirror.write(output.release(number, topic, changes, small=True))
            assert output.texts(version=version) == expected
            # What has no end is the mirror.
            current = [row for row in output.read(version=version) if row["is_current"]]
            for row in current:
                for ours in ("valid_from", "valid_to", "is_current"):
                    del row[ours]
            rows = sorted(repr(sorted(row.items())) for row in current)
            assert rows == outputs["spark"].texts("mirror", mirrored["t"].version)
    assert len(expected) > 10
    asides = [output.texts("history_incomplete") for output in outputs.values()]
    assert asides[0] == asides[1] == asides[2]
    # A DELETE does not take back that an UPDATE before it had no row.
    assert len(asides[0]) == 5
    assert {"delta-rs", "spark"} == set(ways)
    spark, direct = (
        kit.spark.read.format("delta").load(f"{outputs[name].folder}/history/t")
        for name in ("spark", "direct")
    )
    assert sorted(spark.columns) == sorted(direct.columns)
    assert spark.exceptAll(direct.select(spark.columns)).count() == 0
    assert direct.select(spark.columns).exceptAll(spark).count() == 0


def random_parts(seed):
    """Four releases of any changes of thirty keys, some at one commit time."""
    rng = random.Random(seed)
    parts = []
    for number in range(4):
        changes = []
        for place in range(60):
            key, us = rng.randrange(30), number * 1_000 + place // 3 + 1
            values = {"a": rng.choice((None, "x", "y")), "b": rng.choice((None, 1, 2))}
            some = {name: values[name] for name in rng.choice((("a",), ("b",), ("a", "b")))}
            made = rng.choice((insert(us, key, **values), update(us, key, **some), delete(us, key)))
            changes.append(made)
        parts.append(numbered(changes))
    return parts


@pytest.mark.rule("sink-history")
@pytest.mark.deep
@pytest.mark.timeout(900)
def test_any_grouping_by_both_ways_leaves_what_one_by_one_leaves(kit, tmp_path, topic, ways):
    parts = random_parts(7)
    one_by_one = Output(kit, tmp_path / "one")
    for number, part in enumerate(parts):
        one_by_one.write(number, topic, part, small=True)
    groupings = {
        "all by Spark": (False, ((-1, 3),)),
        "all by delta-rs": (True, ((-1, 3),)),
        "two and two": (False, ((-1, 1), (1, 3))),
        "one and three": (True, ((-1, 0), (0, 3))),
    }
    for name, (small, bounds) in groupings.items():
        output = Output(kit, tmp_path / name.replace(" ", "-"))
        for number, part in enumerate(parts):
            output.append(number, topic, part)
        ways.clear()
        for after, through in bounds:
            merged = output.merge(topic, after, through, small=small)["t"]
            output.open()
            assert output.merge(topic, after, through, small=not small)["t"] == merged
        assert ways == ["delta-rs" if small else "spark"] * len(bounds)
        assert output.versions("id", "a", "b") == one_by_one.versions("id", "a", "b")
        assert output.texts("history_incomplete") == one_by_one.texts("history_incomplete")
    assert len(one_by_one.read()) > 50
    assert one_by_one.set_aside()


STEPS = {
    "direct append": (DirectTable, "append"),
    "direct merge": (DirectTable, "merge"),
    "append by Spark": (SinkTables, "append"),
    "MERGE by Spark": (module, "merge_staged"),
    "preparation": (SinkTables, "prepare"),
}


@pytest.mark.rule("sink-history")
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("small", "step", "call"),
    [
        pytest.param(True, "direct append", 0, marks=pytest.mark.deep),
        (True, "direct merge", 0),
        pytest.param(True, "preparation", 1, marks=pytest.mark.deep),
        pytest.param(False, "append by Spark", 0, marks=pytest.mark.deep),
        (False, "MERGE by Spark", 0),
    ],
)
def test_a_kill_before_or_after_a_step_is_made_good_by_either_way(
    kit, tmp_path, monkeypatch, topic, *, small, step, call
):
    changes = [
        update(20, 1, b=-1),
        delete(20, 2),
        update(30, 9, b=9),
        update(30, 1, b=-2),
        delete(40, 9),
        insert(50, 9, a="late"),
    ]
    for after, replay_small in itertools.product((False, True), (True, False)):
        output = Output(kit, tmp_path / f"{after}-{replay_small}")
        output.write(0, topic, [insert(10, n, b=n) for n in (1, 2, 3)], small=True)
        with monkeypatch.context() as patched:
            killing(patched, *STEPS[step], call=call, after=after)
            with pytest.raises(Killed):
                output.write(1, topic, changes, small=small)
        output.open()
        output.write(1, topic, changes, small=replay_small)
        assert output.versions("id", "a", "b") == [
            (10, 20, 1, None, 1),
            (10, 20, 2, None, 2),
            (10, None, 3, None, 3),
            (20, 30, 1, None, -1),
            (30, None, 1, None, -2),
            (50, None, 9, "late", None),
        ]
        assert output.set_aside() == [(1, 2)]
        path = f"{output.folder}/history/t"
        commits = kit.spark.sql(f"DESCRIBE HISTORY delta.`{path}`").collect()
        metadata = [row["userMetadata"] for row in commits]
        assert len(metadata) == len(set(metadata)) == 3


def test_a_replaced_run_leaves_a_release_of_its_successor_as_it_is(output, topic):
    output.write(0, topic, [insert(10, 1), insert(10, 2)], small=True)
    changes = [update(20, 1, b=1), delete(30, 1), delete(30, 2)]
    former, former_by_spark = output.sink, output.by_spark
    output.open()
    output.write(1, topic, changes, small=True)
    output.write(2, topic, [insert(40, 1)], small=True)
    expected = output.texts()
    for sink, small in ((former, True), (former_by_spark, False)):
        sink.write(output.release(1, topic, changes, small=small))
        # An UPDATE of a row that its own release deletes is none of an unknown row.
        assert (output.texts(), output.set_aside()) == (expected, [])


def test_keys_that_are_floating_point_numbers_are_merged_by_spark(kit, output, ways):
    topic = kit.Topic("t", {1: {"id": "FLOAT64", "a": "INT64"}}, ["id"])
    nan = float("nan")
    output.write(0, topic, [kit.Change("INSERT", {"id": nan}, {"a": 1}, us=1)], small=True)
    output.write(1, topic, [kit.Change("UPDATE", {"id": nan}, {"a": 2}, us=2)], small=True)
    assert output.versions("a") == [(1, 2, 1), (2, None, 2)]
    assert ways == ["spark", "spark"]


def test_only_current_versions_count_for_what_delta_rs_may_rewrite(
    output, topic, ways, monkeypatch
):
    output.write(0, topic, [insert(n + 1, n, a="x" * 40) for n in range(200)], small=True)
    output.write(1, topic, [delete(1_000 + n, n) for n in range(199)], small=True)
    files = DirectTable(f"{output.folder}/history/t")
    current = sum(size for _, size in files.files({"is_current": True}))
    assert current < sum(size for _, size in files.files()) / 2
    limit = "tidegate.spark_consumer.sinks.delta.direct_way._MIRROR_BYTES_MAX"
    monkeypatch.setattr(limit, current)
    output.write(2, topic, [update(2_000, 199, b=1)], small=True)
    monkeypatch.setattr(limit, 100)
    output.write(3, topic, [update(3_000, 199, b=2)], small=True)
    assert ways == ["delta-rs"] * 3 + ["spark"]
