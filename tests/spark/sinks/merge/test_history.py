"""The history: at any time one row of each key that was alive, whatever was written how."""

import itertools
import random
from pathlib import Path

import deltalake
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tests.spark.sinks.outputs import MERGING, Output, examples
from tests.topics import Change, Topic
from tidegate.schemas.errors import ConfigError, ExitCode
from tidegate.spark_consumer.errors import FilteredMirror, ForeignChange
from tidegate.spark_consumer.sinks.delta.adoption import adopt_changes
from tidegate.spark_consumer.sinks.delta.direct.table import DirectTable
from tidegate.spark_consumer.sinks.merge import history as module
from tidegate.spark_consumer.sinks.merge import mirror as mirror_module
from tidegate.spark_consumer.sinks.port import MergingSink
from tidegate.spark_consumer.sinks.sql import session_settings

pytestmark = [pytest.mark.spark, pytest.mark.slow]

COLUMNS = {"id": "INT64", "a": "STRING(MAX)", "b": "INT64"}
BOTH = pytest.mark.parametrize("small", [False, True], ids=["spark", "delta-rs"])
SMALL_PER_MERGE = pytest.mark.parametrize(
    "small",
    [pytest.param(False, marks=pytest.mark.deep, id="spark"), pytest.param(True, id="delta-rs")],
)


@pytest.fixture
def ways(monkeypatch):
    """Names of the ways in which tables were merged."""
    called = []

    def noting(owner, name, way):
        method = getattr(owner, name)

        def noted(*known, **named):
            called.append(way)
            return method(*known, **named)

        monkeypatch.setattr(owner, name, noted)

    noting(DirectTable, "merge", "delta-rs")
    noting(module, "merge_staged", "spark")
    # Not `_merge_table`, which a release that the table has reaches too.
    noting(mirror_module, "_merge", "spark")
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


# By case: the changes of one key in three releases, its versions, and `b` of what goes aside.
CASES = {
    "versions begin and end at commit times": (
        [[("I", 10, {"a": "x", "b": 1})], [("U", 20, {"b": 2}), ("U", 30, {"a": None})],
         [("D", 50), ("I", 60, {"a": "z"})]],
        [(10, 20, "x", 1), (20, 30, "x", 2), (30, 50, None, 2), (60, None, "z", None)], (),
    ),
    "changes of one commit time make one version": (
        [[("I", 10, {"a": "first"}), ("U", 10, {"a": "second"})],
         [("U", 20, {"b": 1}), ("U", 20, {"b": 2})], [("U", 30, {"b": 3}), ("D", 30)]],
        [(10, 20, "second", None), (20, 30, "second", 2)], (),
    ),
    "none has no duration": ([[("I", 10, {"a": "gone"}), ("D", 10)], [], []], [], ()),
    "a row is replaced at one time": (
        [[("I", 10, {"a": "old"}), ("D", 10), ("I", 10, {"b": 7})],
         [("D", 20), ("I", 20, {"b": 8})], [("I", 30, {"b": 9}), ("D", 30)]],
        [(10, 20, None, 7), (20, 30, None, 8)], (),
    ),
    "the next release ends a version at its own time": (
        [[("I", 10, {"a": "x"}), ("U", 20, {"a": "y"})], [("U", 20, {"b": 1})], []],
        [(10, 20, "x", None), (20, None, "y", 1)], (),
    ),
    "the next release deletes it at its own time": ([[("I", 20)], [("D", 20)], []], [], ()),
    "what was not captured is that of the version before": (
        [[("I", 10, {"a": "x", "b": 1})], [("U", 20, {"a": None}), ("U", 30, {"b": None})],
         [("U", 40, {"a": "z"})]],
        [(10, 20, "x", 1), (20, 30, None, 1), (30, 40, None, None), (40, None, "z", None)], (),
    ),
    "of an INSERT nothing of the version before stays": (
        [[("I", 10, {"a": "x", "b": 1})], [("D", 50), ("I", 60)], [("U", 70, {"b": 5})]],
        [(10, 50, "x", 1), (60, 70, None, None), (70, None, None, 5)], (),
    ),
    "updates of unknown rows go aside and open nothing": (
        [[("U", 10, {"b": 1}), ("U", 12, {"b": 2}), ("D", 13), ("U", 14, {"b": 3}),
          ("I", 15, {"a": "x"}), ("U", 16, {"b": 4})], [], []],
        [(15, 16, "x", None), (16, None, "x", 4)], (1, 2, 3),
    ),
    "only such": ([[], [("U", 10, {"b": 5})], [("D", 12), ("U", 13, {"b": 6})]], [], (5, 6)),
}  # fmt: skip


def made(key, n, mod, us, new=None):
    make = {"I": insert, "U": update, "D": delete}[mod]
    change = make(us, key, **new) if new else make(us, key)
    change.sequence, change.mod_number = n, key
    return change


@pytest.mark.rule("sink-history")
@BOTH
def test_versions_of_each_case_and_each_table_of_a_release(kit, output, topic, ways, small):
    sink = output.sinks["history", small]
    assert isinstance(sink, MergingSink)
    keys = kit.Topic("keys", {2: {"id": "INT64", "k": "STRING(MAX)"}}, ["id", "k"], key_id=9)
    quiet = kit.Topic("quiet", {3: COLUMNS}, ["id"], key_id=8)
    of_keys = [
        [("INSERT", n, k) for n, k in ((None, None), (None, "x"), (1, None))],
        [("UPDATE", None, None), ("DELETE", 1, None)],
        [],
    ]
    versions = []
    for number in range(3):
        changes = [
            (topic, made(key, n, *one))
            for key, (parts, _, _) in enumerate(CASES.values())
            for n, one in enumerate(parts[number])
        ]
        changes += [
            (keys, kit.Change(mod, {"id": n, "k": k}, None if mod == "DELETE" else {},
                              us=10 + number * 10, mod_number=99 + place))
            for place, (mod, n, k) in enumerate(of_keys[number])
        ]  # fmt: skip
        release = kit.release(number, changes, topics=[topic, keys, quiet], small=small)
        with capture_logs() as lines:
            versions.append(sink.write(release))
    assert {name: one.path for name, one in versions[0].items()} == {
        name: f"history/{name}" for name in ("t", "keys", "quiet")
    }
    assert set(ways) == {"delta-rs" if small else "spark"}
    found, aside = output.versions("id", "a", "b"), output.read("history_incomplete")
    for key, (name, (_, expected, lost)) in enumerate(CASES.items()):
        of_key = [(start, end, a, b) for start, end, id_, a, b in found if id_ == key]
        assert (name, of_key) == (name, sorted(expected, key=str))
        of_aside = sorted(row["new_values"]["b"] for row in aside if row["key"]["id"] == key)
        assert (name, of_aside) == (name, list(lost))
    assert len(aside) == sum(len(lost) for *_, lost in CASES.values())
    events = [(one["event"], one["changes"]) for one in lines if "lacks" in one["event"]]
    assert events == [("updates of rows that the history lacks", 1)]
    assert output.versions("id", "k", table="keys") == [
        (10, 20, 1, None), (10, 20, None, None), (10, None, None, "x"), (20, None, None, None),
    ]  # fmt: skip
    assert output.versions("a", table="quiet") == []
    schemas = [topic.topic_schemas()]
    assert sink.versions(0, schemas) == {"t": versions[0]["t"]}
    assert sink.versions(2, schemas) == {"t": versions[2]["t"]}


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


@SMALL_PER_MERGE
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


def test_columns_with_a_prefix_leave_the_plain_names_to_the_table_in_both_ways(kit, tmp_path, ways):
    topic = Topic("t", {1: {"id": "INT64", "valid_from": "INT64", "is_current": "BOOL"}}, ["id"])
    output = Output(kit, tmp_path / "out", prefix="dbt_")
    values = {"valid_from": 7, "is_current": False}
    first = Change("INSERT", {"id": 1}, values, us=10)
    output.write(0, topic, [first], small=True)
    for number, small in enumerate((False, True), start=1):
        change = Change("UPDATE", {"id": 1}, {"valid_from": number}, us=10 + number, every=False)
        output.write(number, topic, [change], small=small)
        output.open()
    assert ways == ["delta-rs", "spark", "delta-rs"]
    path = f"{output.folder}/history/t"
    assert deltalake.DeltaTable(path).metadata().partition_columns == ["dbt_is_current"]
    rows = kit.spark.read.format("delta").load(path).orderBy("dbt_valid_from").collect()
    assert [
        (row["valid_from"], row["is_current"], row["dbt_is_current"], row["dbt_valid_to"] is None)
        for row in rows
    ] == [(7, False, False, False), (1, False, False, False), (2, False, True, True)]
    with pytest.raises(ConfigError, match="column_in_table='dbt_is_current'"):
        Output(kit, output.folder)
    with pytest.raises(ConfigError, match="columns=\\['is_current', 'valid_from'\\]"):
        Output(kit, tmp_path / "plain").write(0, topic, [first], small=True)


@SMALL_PER_MERGE
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


@pytest.mark.rule("sink-history")
@pytest.mark.timeout(900)
@examples(2)
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
    """From the changelog, into the mirror too."""
    parts = random_parts(7)
    one_by_one = Output(kit, tmp_path / "one")
    for number, part in enumerate(parts):
        for to in MERGING:
            one_by_one.write(number, topic, part, small=True, to=to)
    groupings = {
        "all by Spark": (False, ((-1, 3),)),
        "all by delta-rs": (True, ((-1, 3),)),
        "two and two": (False, ((-1, 1), (1, 3))),
        "one and three": (True, ((-1, 0), (0, 3))),
    }
    asides = {"one by one": set(one_by_one.set_aside("incomplete"))}
    for name, (small, bounds) in groupings.items():
        output = Output(kit, tmp_path / name.replace(" ", "-"))
        for number, part in enumerate(parts):
            output.append(number, topic, part)
        ways.clear()
        for (after, through), to in itertools.product(bounds, MERGING):
            merged = output.merge(topic, after, through, small=small, to=to)["t"]
            output.open()
            assert output.merge(topic, after, through, small=not small, to=to)["t"] == merged
        assert ways == ["delta-rs" if small else "spark"] * 2 * len(bounds)
        for folder in ("history", "history_incomplete", "mirror"):
            assert output.texts(folder) == one_by_one.texts(folder)
        asides[name] = set(output.set_aside("incomplete"))
    assert asides["all by Spark"] == asides["all by delta-rs"]
    assert asides["all by Spark"] <= asides["two and two"] <= asides["one by one"]
    assert len(one_by_one.read()) > 50
    assert one_by_one.set_aside()


def test_a_replaced_run_leaves_a_release_of_its_successor_as_it_is(output, topic):
    output.write(0, topic, [insert(10, 1), insert(10, 2)], small=True)
    changes = [update(20, 1, b=1), delete(30, 1), delete(30, 2)]
    former = output.sinks
    output.open()
    output.write(1, topic, changes, small=True)
    output.write(2, topic, [insert(40, 1)], small=True)
    expected = output.texts()
    for small in (True, False):
        former["history", small].write(output.release(1, topic, changes, small=small))
        # An UPDATE of a row that its own release deletes is none of an unknown row.
        assert (output.texts(), output.set_aside()) == (expected, [])


def test_only_current_versions_count_for_what_delta_rs_may_rewrite(
    output, topic, ways, monkeypatch
):
    output.write(0, topic, [insert(n + 1, n, a="x" * 40) for n in range(200)], small=True)
    output.write(1, topic, [delete(1_000 + n, n) for n in range(199)], small=True)
    files = DirectTable(f"{output.folder}/history/t")
    current = sum(size for _, size in files.files({"is_current": True}))
    assert current < sum(size for _, size in files.files()) / 2
    limit = "tidegate.spark_consumer.sinks.delta.direct.way._MIRROR_BYTES_MAX"
    monkeypatch.setattr(limit, current)
    output.write(2, topic, [update(2_000, 199, b=1)], small=True)
    monkeypatch.setattr(limit, 100)
    output.write(3, topic, [update(3_000, 199, b=2)], small=True)
    assert ways == ["delta-rs"] * 3 + ["spark"]
