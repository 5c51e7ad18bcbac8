"""What is read from Kafka, counted, kept and released: small frames, each module's own promises."""

import json
from dataclasses import replace

import pytest

from tidegate.schemas.errors import ConfigError, SchemaError
from tidegate.schemas.order_key import OrderKey
from tidegate.schemas.progress import ChildPartition, PartitionAnnounced, ProgressRecord
from tidegate.schemas.progress_codec import RECORD_SCHEMA_TEXT, encode_key, encode_record
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.topics import TopicNames
from tidegate.schemas.wire_format import frame
from tidegate.spark_consumer.core.batch_state import Segment, State, TopicIds
from tidegate.spark_consumer.core.gate import Census
from tidegate.spark_consumer.core.plan import Compaction, ReleaseBounds
from tidegate.spark_consumer.core.subscription import Subscription
from tidegate.spark_consumer.spark import progress_rows
from tidegate.spark_consumer.spark.census import census_of
from tidegate.spark_consumer.spark.gate_files import GateFiles, newest_state
from tidegate.spark_consumer.spark.late import LateTable
from tidegate.spark_consumer.spark.progress_rows import ProgressReader
from tidegate.spark_consumer.spark.rows import CHANGE_COLUMNS, kafka_columns, within
from tidegate.spark_consumer.spark.schema_store import SchemaStore
from tidegate.spark_consumer.spark.segments import SegmentFiles
from tidegate.spark_consumer.spark.storage import Storage

pytestmark = pytest.mark.spark

SUBSCRIPTION = Subscription(TopicNames("bank"))
SCHEMA = (
    "is_progress boolean, topic string, topic_partition int, offset long, key binary,"
    " value binary, order_key binary, mod string"
)


def change(commit_us, offset=0, *, topic="bank.a", key_id=1, value_id=2, transaction="t"):
    order_key = OrderKey(commit_us, transaction, (0, 0), 0).encode()
    value = None if value_id is None else bytearray(frame(value_id, b"v"))
    key = bytearray(frame(key_id, b"k"))
    return (False, topic, 0, offset, key, value, bytearray(order_key), "I")


@pytest.fixture
def rows(spark):
    return lambda *rows: spark.createDataFrame(list(rows), SCHEMA)


@pytest.fixture
def storage(spark, tmp_path):
    storage = Storage(spark, str(tmp_path / "gate"))
    storage.take()
    return storage


def commit_us(frame):
    return [int.from_bytes(row.order_key[:8], "big") for row in frame.collect()]


def test_kafkas_rows_get_the_gates_columns(spark):
    headers = "array<struct<key:string,value:binary>>"
    kafka = spark.createDataFrame(
        [
            ("t", 3, 9, b"k", b"v", [("order", b"\x01"), ("mod", b"U")]),
            ("t", 3, 10, b"k", b"v", [("mod", b"U"), ("order", b"\x01")]),
            ("t", 3, 11, b"k", b"v", None),
        ],
        f"topic string, partition int, offset long, key binary, value binary, headers {headers}",
    )
    found = kafka_columns(kafka, is_progress=False)
    assert found.columns == ["is_progress", *CHANGE_COLUMNS]
    assert [(row.order_key, row.mod) for row in found.collect()] == [
        (b"\x01", "U"),
        (None, None),
        (None, None),
    ]


@pytest.mark.parametrize(
    ("after_us", "through_us", "expected"),
    [(10, 20, [11, 20]), (-1, 10, [0, 10]), (9, 10, [10]), (20, 30, [])],
)
def test_bounds_are_exclusive_below_and_inclusive_above(rows, after_us, through_us, expected):
    found = rows(*(change(us) for us in (0, 10, 11, 20)))
    assert commit_us(found.where(within(after_us=after_us, through_us=through_us))) == expected


def test_the_census_counts_against_both_watermarks(rows):
    progress = (True, "bank-progress", 0, 0, b"k", b"v", None, None)
    found = census_of(
        rows(
            progress,
            *(change(us) for us in (5, 10)),
            *(change(us, value_id=4) for us in (11, 15, 20)),
            *(change(us, topic="bank.b", key_id=7, value_id=None) for us in (21, 40)),
        ),
        after_us=10,
        through_us=20,
    )
    assert (found.late_rows, found.due.rows, found.early.rows) == (2, 3, 2)
    assert set(found.due.quantiles_us) == {11, 15, 20}
    assert found.due.quantiles_us[-1] == 20
    assert (found.early_min_us, found.early_max_us) == (21, 40)
    assert found.topics == (TopicIds("bank.a", (1,), (2, 4)), TopicIds("bank.b", (7,), ()))
    assert (found.unordered_rows, found.unordered_at) == (0, "")


def test_the_census_of_nothing_is_nothing(rows):
    assert census_of(rows(), after_us=-1, through_us=-1) == Census()


@pytest.mark.parametrize("order_key", [None, b"", b"\x00" * 28])
def test_a_row_without_a_whole_order_key_is_found(rows, order_key):
    bad = (*change(5, 77)[:6], order_key, "I")
    found = census_of(rows(change(11), bad), after_us=10, through_us=20)
    assert (found.unordered_rows, found.unordered_at) == (1, "bank.a/0/77")
    assert (found.late_rows, found.due.rows) == (0, 1)


def test_a_value_without_confluents_header_is_refused(rows):
    bad = (*change(5)[:5], b"\x01\x00", *change(5)[6:])
    with pytest.raises(SchemaError, match="header"):
        census_of(rows(bad), after_us=-1, through_us=20)


def test_segments_give_back_what_is_released_in_order_and_once(spark, rows, storage):
    files = SegmentFiles(spark, storage.path("segments"))
    files.store(rows(*(change(us, us) for us in (30, 12, 45, 99))), Segment("a", 12, 45, 3, (45,)))
    files.store(rows(*(change(us, us) for us in (20, 99))), Segment("b", 20, 20, 1, (20,)))
    fresh = rows(change(15, 1), change(12, 500), change(44, 2), (True, *change(13)[1:]))
    released = files.release(fresh, ReleaseBounds(0, 11, 30, ("a", "b"))).collect()
    assert [(int.from_bytes(row.order_key[:8], "big"), row.offset) for row in released] == [
        (12, 12),
        (15, 1),
        (20, 20),
        (30, 30),
    ]
    assert [row.ordinal for row in released] == [0, 1, 2, 3]


def test_one_sort_makes_a_release(spark, rows, storage):
    """Fixed cost decides: no shuffle, and the aggregation's sort is the release's order."""
    files = SegmentFiles(spark, storage.path("segments"))
    released = files.release(rows(change(15)).coalesce(2), ReleaseBounds(0, 11, 30, ()))
    plan = released._jdf.queryExecution().executedPlan().toString()
    assert "Exchange" not in plan
    assert plan.count("Sort [") == 1


def test_joined_segments_leave_behind_what_is_released(spark, rows, storage):
    files = SegmentFiles(spark, storage.path("segments"))
    files.store(rows(change(12), change(30)), Segment("a", 12, 30, 2, (30,)))
    files.store(rows(change(20)), Segment("b", 20, 20, 1, (20,)))
    files.join(Compaction(("a", "b"), Segment("c", 12, 30, 3, (30,))), after_us=12)
    files.store(rows(change(77)), Segment("a", 77, 77, 1, (77,)))
    assert commit_us(files.release(rows(), ReleaseBounds(0, -1, 50, ("c",)))) == [20, 30]


class ProgressLog:
    def __init__(self):
        self.registry = InMemorySchemaRegistry()
        self.schema_id = self.registry.register("p", json.loads(RECORD_SCHEMA_TEXT))
        self.rows = []

    def announce(self, token, *, slot=0, schema_id=None):
        body = PartitionAnnounced(ChildPartition(token, ("p",), 5), "p")
        value = frame(schema_id or self.schema_id, encode_record(ProgressRecord("e", "w", body)))
        key = bytearray(frame(1, encode_key(body)))
        offset = len(self.rows)
        self.rows.append((True, "x", slot, offset, key, bytearray(value), None, None))

    def tombstone(self, offset):
        self.rows.append(
            (*self.rows[offset][:3], len(self.rows), self.rows[offset][4], *[None] * 3)
        )


@pytest.mark.parametrize("thinned", [False, True])
def test_progress_rows_are_decoded_thinned_or_not(rows, monkeypatch, thinned):
    log = ProgressLog()
    for token, slot in (("a", 0), ("b", 1), ("a", 0), ("c", 0)):
        log.announce(token, slot=slot)
    log.tombstone(3)
    monkeypatch.setattr(progress_rows, "ROWS_TAKEN_WHOLE_MAX", 3)
    reader = ProgressReader(log.registry.schema)
    found = reader.read(rows(*log.rows, change(3)), offsets=5 if thinned else 2)
    tokens = sorted((row.offset, row.slot, row.record.body.child.token) for row in found)
    whole = [(0, 0, "a"), (1, 1, "b"), (2, 0, "a"), (3, 0, "c")]
    assert tokens == ([(1, 1, "b"), (2, 0, "a")] if thinned else whole)


def test_a_progress_record_of_a_newer_version_is_read_with_its_own_schema(rows):
    log = ProgressLog()
    newer = json.loads(RECORD_SCHEMA_TEXT)
    newer["doc"] = "another version"
    log.announce("a", schema_id=log.registry.register("p", newer))
    (found,) = ProgressReader(log.registry.schema).read(rows(*log.rows), offsets=1)
    assert found.record.body.child.token == "a"


def test_bytes_that_are_no_progress_record_are_refused(rows):
    log = ProgressLog()
    log.announce("a")
    broken = (*log.rows[0][:5], bytearray(frame(log.schema_id, b"\xff")), None, None)
    with pytest.raises(SchemaError):
        ProgressReader(log.registry.schema).read(rows(broken), offsets=1)


def test_schemas_are_asked_for_once_and_then_stored(storage):
    registry = InMemorySchemaRegistry()
    ids = [registry.register(s, {"type": "string", "doc": s}) for s in ("k", "v1", "v2")]
    known = [TopicIds("bank.a", (ids[0],), (ids[1], ids[2])), TopicIds("bank.b", (ids[0],), ())]
    first = SchemaStore(storage, registry).topics(known, SUBSCRIPTION)
    again = SchemaStore(storage, InMemorySchemaRegistry()).topics(known, SUBSCRIPTION)
    assert first == again
    assert set(first) == {"bank.a"}
    assert first["bank.a"].table == "a"
    assert first["bank.a"].reader_schema["doc"] == "v2"
    assert set(first["bank.a"].writer_schemas) == set(ids)
    with pytest.raises(SchemaError):
        SchemaStore(storage, InMemorySchemaRegistry()).schema(99)


def test_a_checkpoint_keeps_its_identity(storage):
    first = GateFiles(storage).identify(prefix="bank", output="o")
    assert GateFiles(storage).identify(prefix="bank", output="o") == first
    with pytest.raises(ConfigError, match="another prefix"):
        GateFiles(storage).identify(prefix="other", output="o")
    with pytest.raises(ConfigError, match="another output"):
        GateFiles(storage).identify(prefix="bank", output="elsewhere")


def test_the_newest_state_is_that_of_the_highest_batch(storage):
    assert newest_state(storage) is None
    files = GateFiles(storage)
    assert files.release_max() == -1
    for batch in (9, 10):
        files.store_state(replace(State("bank", "q"), batch=batch, next_release=batch))
    assert newest_state(storage).batch == 10
    assert files.release_max() == 9


def test_late_changes_are_kept_once_with_the_watermark_they_missed(spark, rows, tmp_path):
    late = LateTable(str(tmp_path))
    found = rows(change(7, 1), change(5, 2)).select(*CHANGE_COLUMNS)
    for _ in range(2):
        late.write(found, query_id="q", batch=3, watermark_us=9)
    late.write(found.limit(1), query_id="q", batch=4, watermark_us=10)
    table = spark.read.format("delta").load(str(tmp_path / "late"))
    kept = sorted((row.batch, row.watermark_us, row.offset) for row in table.collect())
    assert kept[:2] == [(3, 9, 1), (3, 9, 2)]
    assert len(kept) == 3
