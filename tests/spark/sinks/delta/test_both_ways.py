"""Both ways of writing a release leave the same tables, and each goes on after the other."""

import copy
import math
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from tests.topics import Change, Topic
from tidegate.spark_consumer.sinks.delta.direct.place import DirectPlace
from tidegate.spark_consumer.sinks.delta.direct.table import DirectTable
from tidegate.spark_consumer.sinks.delta.direct.way import DirectWay, find_direct_way
from tidegate.spark_consumer.sinks.kinds import changelog_sink
from tidegate.spark_consumer.sinks.merge.mirror import DeltaMirrorSink
from tidegate.spark_consumer.sinks.sql import session_settings
from tidegate.spark_consumer.sinks.tables import Commit

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
            for sink in (changelog_sink, DeltaMirrorSink)
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


@pytest.mark.timeout(900)
def test_both_ways_leave_the_same_tables(kit, tmp_path, direct_commits):
    """Every type and kind of change; worlds of any schema have changing columns."""
    outputs = {small: Output(kit, tmp_path / f"{small}") for small in (False, True)}
    for number, (topic, changes) in enumerate(history()[:2]):
        written = {
            small: output.write(number, topic, changes, small=small)
            for small, output in outputs.items()
        }
        for at, folder in enumerate(("changelog", "mirror")):
            by_spark, direct = (written[small][at]["t"] for small in (False, True))
            assert by_spark.rows == direct.rows
            rows = outputs[True].rows(folder, direct.version)
            assert rows == outputs[False].rows(folder, by_spark.version)
    for folder in FOLDERS:
        assert_equal(outputs[True].frame(folder), outputs[False].frame(folder))
    assert outputs[True].frame("incomplete").count() == 4
    assert direct_commits.count("merge") == 2
    assert direct_commits.count("append") == 2 + 1
    assert len(list((tmp_path / "True/changelog/t").glob("*.parquet"))) == 2


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


LARGE = "a mirror that is large"
INT96 = "timestamps of 96 bits"
FEATURE = "a feature that delta-rs lacks"
LEFT_TO_SPARK = {
    "no reason": ("INT64", 1),
    "a key of FLOAT64": ("FLOAT64", math.nan),
    "a key of FLOAT32": ("FLOAT32", math.nan),
    INT96: ("INT64", 1),
    FEATURE: ("INT64", 1),
    LARGE: ("INT64", 1),
}
"""Type and value of the key, by the reason for which Spark merges a table of a small release."""


def test_what_delta_rs_cannot_merge_as_spark_does_is_left_to_spark(kit, tmp_path, monkeypatch):
    """One release with a table for each reason, then one that changes all their rows."""
    topics = {
        reason: Topic(f"t{n}", {n: {"id": kind, "at": "TIMESTAMP", "a": "INT64"}}, ["id"], 100 + n)
        for n, (reason, (kind, _)) in enumerate(LEFT_TO_SPARK.items())
    }
    output, merged, merge = Output(kit, tmp_path / "out"), [], DirectTable.merge
    folder = f"{output.folder}/mirror"

    def write(number, *reasons, small=True, **new):
        mod = "UPDATE" if number == 9 else "INSERT"
        changes = [
            (topics[one], Change(mod, {"id": LEFT_TO_SPARK[one][1]}, new, us=1)) for one in reasons
        ]
        output.sinks[1].write(kit.release(number, changes, small=small))

    def noted(self, *known, **named):
        merged.append(Path(self._table.table_uri).name)
        return merge(self, *known, **named)

    others = [one for one in LEFT_TO_SPARK if one not in {INT96, LARGE}]
    write(0, *others, at=FIRST, a=1)
    with session_settings(kit.spark, {"spark.sql.parquet.outputTimestampType": "INT96"}):
        write(1, INT96, small=False, at=FIRST, a=1)
    large = [
        (topics[LARGE], Change("INSERT", {"id": n}, {"at": FIRST, "a": 1}, us=1, mod_number=n))
        for n in range(1, 2_000)
    ]
    output.sinks[1].write(kit.release(2, large, small=True))
    limit = "tidegate.spark_consumer.sinks.delta.direct.way._MIRROR_BYTES_MAX"
    monkeypatch.setattr(limit, 5_000)
    kit.spark.sql(
        f"ALTER TABLE delta.`{folder}/{topics[FEATURE].table}` "
        "SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    monkeypatch.setattr(DirectTable, "merge", noted)
    write(9, *LEFT_TO_SPARK, a=2)
    assert merged == ["t0"]
    for reason, topic in topics.items():
        rows = kit.spark.read.format("delta").load(f"{folder}/{topic.table}").where("a = 2")
        found = [tuple(row) for row in rows.selectExpr("cast(at as string)", "a").collect()]
        assert (reason, found) == (reason, [("0001-01-01 00:00:00.000001", 2)])


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
