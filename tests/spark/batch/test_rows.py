"""The gate's columns, comparisons of order keys, and progress rows, decoded."""

import copy

import pytest
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tests.spark.gate_rows import change, commit_times_us
from tidegate.schemas.checksums import origin_of
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.progress import (
    ChildPartition,
    PartitionAnnounced,
    PartitionFinished,
    ProgressRecord,
    SlotChanges,
    SlotProgress,
    SlotWatermark,
    StreamStarted,
    TopicOffset,
)
from tidegate.schemas.progress_codec import (
    RECORD_SCHEMA,
    RECORD_SCHEMAS,
    encode_key,
    encode_record,
)
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.wire_format import frame
from tidegate.spark_consumer.batch import progress_rows
from tidegate.spark_consumer.batch.progress_rows import ProgressReader
from tidegate.spark_consumer.batch.rows import CHANGE_COLUMNS, kafka_columns, within

pytestmark = pytest.mark.spark

KEY = bytes(29)
"""The shortest order key."""

ORIGINS = {
    bytes(8): 0,
    b"\x7f" + b"\xff" * 7: 2**63 - 1,
    b"\x80" + bytes(7): -(2**63),
    b"\xff" * 8: -1,
    b"\xff" * 7: None,
    b"\x01" * 9: None,
    b"": None,
    origin_of("P"): int.from_bytes(origin_of("P"), "big", signed=True),
}
"""Contents of the header, and the column."""


def test_kafkas_rows_get_the_gates_columns(spark):
    headers = "array<struct<key:string,value:binary>>"
    kafka = spark.createDataFrame(
        [
            ("t", 3, 9, b"k", b"v", [("order", KEY), ("mod", b"U")]),
            *(
                ("t", 3, 12, b"k", b"v", [("order", KEY), ("mod", b"U"), ("origin", origin)])
                for origin in ORIGINS
            ),
            ("t", 3, 13, b"k", b"v", [("order", KEY), ("mod", b"U"), ("redriven", bytes(8))]),
            ("t", 3, 10, b"k", b"v", [("mod", b"U"), ("order", KEY)]),
            ("t", 3, 11, b"k", b"v", None),
        ],
        f"topic string, partition int, offset long, key binary, value binary, headers {headers}",
    )
    columns = kafka_columns(kafka, is_progress=False)
    assert columns.columns == ["is_progress", *CHANGE_COLUMNS, "headers"]
    assert [(row.order_key, row.mod, row.origin) for row in columns.collect()] == [
        (KEY, "U", None),
        *((KEY, "U", number) for number in ORIGINS.values()),
        (KEY, "U", None),
        (None, None, None),
        (None, None, None),
    ]


@pytest.mark.parametrize("is_progress", [False, True])
def test_a_record_without_a_value_is_a_row_of_the_progress_topic_only(spark, is_progress):
    headers = "array<struct<key:string,value:binary>>"
    named = [("order", KEY), ("mod", b"D")]
    kafka = spark.createDataFrame(
        [("t", 3, 9, b"k", b"", named), ("t", 3, 10, b"k", None, None)],
        f"topic string, partition int, offset long, key binary, value binary, headers {headers}",
    )
    rows = kafka_columns(kafka, is_progress=is_progress).collect()
    assert [row.offset for row in rows] == ([9, 10] if is_progress else [9])


def test_the_origin_is_sparks_hash_of_the_token(spark):
    tokens = ["", "P", "täglich", "x" * 200, *(f"token {number}" for number in range(50))]
    hashed = spark.createDataFrame([(token,) for token in tokens], "token string").select(
        F.xxhash64("token").alias("number")
    )
    numbers = [int.from_bytes(origin_of(token), "big", signed=True) for token in tokens]
    assert [row.number for row in hashed.collect()] == numbers


@pytest.mark.parametrize(
    ("after_us", "through_us", "expected"),
    [(10, 20, [11, 20]), (-1, 10, [0, 10]), (9, 10, [10]), (20, 30, [])],
)
def test_bounds_are_exclusive_below_and_inclusive_above(rows, after_us, through_us, expected):
    found = rows(*(change(us) for us in (0, 10, 11, 20)))
    assert (
        commit_times_us(found.where(within(after_us=after_us, through_us=through_us))) == expected
    )


# ---------------------------------------------------------------- progress rows


class ProgressLog:
    def __init__(self):
        self.registry = InMemorySchemaRegistry()
        self.schema_id = self.registry.register("p", copy.deepcopy(RECORD_SCHEMA))
        self.rows = []

    def announce(self, token, *, slot=0, schema_id=None):
        body = PartitionAnnounced(ChildPartition(token, ("p",), 5), "p")
        self.add(body, slot=slot, schema_id=schema_id)

    def add(self, body, *, slot=0, schema_id=None, version=2):
        record = ProgressRecord("e", "w", body, version=version)
        schema_id = schema_id or self.schema_id
        if version == 1:
            schema_id = self.registry.register("p", copy.deepcopy(RECORD_SCHEMAS[1]))
        value = frame(schema_id, encode_record(record))
        key = bytearray(frame(version, encode_key(body, version)))
        offset = len(self.rows)
        self.rows.append((True, "x", slot, offset, key, bytearray(value), None, None, None))

    def tombstone(self, offset):
        self.rows.append(
            (*self.rows[offset][:3], len(self.rows), self.rows[offset][4], *[None] * 4)
        )


def read(log, frame, *, offsets):
    portions = ProgressReader(log.registry.schema).read(frame, offsets=offsets)
    return [row for portion in portions for row in portion]


@pytest.fixture
def thins(monkeypatch):
    """Every history is a long one, of which four intervals are kept."""
    monkeypatch.setattr(progress_rows, "ROWS_TAKEN_WHOLE_MAX", 0)
    monkeypatch.setattr(progress_rows, "MINUTES_KEPT", 4)


@pytest.mark.parametrize("thinned", [False, True])
def test_progress_rows_are_decoded_thinned_or_not(rows, monkeypatch, thinned):
    log = ProgressLog()
    for token, slot in (("a", 0), ("b", 1), ("a", 0), ("c", 0)):
        log.announce(token, slot=slot)
    log.tombstone(3)
    monkeypatch.setattr(progress_rows, "ROWS_TAKEN_WHOLE_MAX", 3)
    found = read(log, rows(*log.rows, change(3)), offsets=5 if thinned else 2)
    tokens = sorted((row.offset, row.slot, row.record.body.child.token) for row in found)
    # An announcement is never superseded: two of one key are the same.
    assert tokens == [(0, 0, "a"), (1, 1, "b"), (2, 0, "a"), (3, 0, "c")]


def test_a_progress_record_of_a_newer_version_is_read_with_its_own_schema(rows):
    log = ProgressLog()
    newer = copy.deepcopy(RECORD_SCHEMA)
    newer["doc"] = "another version"
    log.announce("a", schema_id=log.registry.register("p", newer))
    (found,) = read(log, rows(*log.rows), offsets=1)
    assert found.record.body.child.token == "a"


def test_bytes_that_are_no_progress_record_are_refused(rows):
    log = ProgressLog()
    log.announce("a")
    broken = (*log.rows[0][:5], bytearray(frame(log.schema_id, b"\xff")), *[None] * 3)
    with pytest.raises(SchemaError):
        read(log, rows(broken), offsets=1)


def minute_of(slot, minute, *, revision, chunk=0, chunks=1):
    vector = (TopicOffset("bank.a", chunk, revision),)
    return SlotWatermark(slot, revision, minute, 0, vector, None, 0, chunk=chunk, chunks=chunks)


@pytest.mark.usefixtures("thins")
def test_of_a_long_history_a_few_minutes_are_kept_whole_and_of_chains_the_newest(rows):
    log = ProgressLog()
    log.add(StreamStarted("s", "g", 0, None, "f", 2, "id", (), ()))
    for minute in range(20):
        for slot in (0, 1):
            # The second slot has half of the minutes.
            if minute % (slot + 1) == 0:
                for chunk in (0, 1):
                    body = minute_of(slot, minute, revision=minute, chunk=chunk, chunks=2)
                    log.add(body, slot=slot)
        log.announce(f"k{minute}")
        log.add(PartitionFinished(f"m{minute}", (), 0, 5, (), ()), slot=1)
    for revision in (30, 40):
        log.add(SlotProgress(0, revision, 0, 0, (), ()))
        for position in (1, 2):
            log.add(SlotChanges(0, revision + position, position, 0, 0, (), None, 0))
    found = read(log, rows(*log.rows, change(3)), offsets=1)

    kept = [row.record.body for row in found]
    minutes = [
        [(one.minute, one.chunk) for one in kept if isinstance(one, SlotWatermark)
         and one.slot == slot]
        for slot in (0, 1)
    ]  # fmt: skip
    assert minutes[0] == [(m, chunk) for m in (0, 4, 9, 14, 19) for chunk in (0, 1)]
    assert minutes[1] == [(m, chunk) for m in (0, 4, 8, 14, 18) for chunk in (0, 1)]
    assert sum(isinstance(one, StreamStarted) for one in kept) == 1
    assert sum(isinstance(one, PartitionAnnounced) for one in kept) == 20
    assert sum(isinstance(one, PartitionFinished) for one in kept) == 20
    chain = [one.revision for one in kept if isinstance(one, SlotProgress | SlotChanges)]
    assert chain == [40, 41, 42]
    for slot in (0, 1):
        offsets = [row.offset for row in found if row.slot == slot]
        assert offsets == sorted(offsets)


@pytest.mark.usefixtures("thins")
def test_minutes_of_version_1_are_thinned_too_and_removed_ones_stay_away(rows):
    log = ProgressLog()
    for minute in range(20):
        log.add(SlotProgress(0, minute, minute, 0, (), ()), version=1)
    log.tombstone(19)
    log.add(minute_of(0, 25, revision=25))
    found = read(log, rows(*log.rows), offsets=1)
    assert [row.record.body.minute for row in found] == [0, 4, 9, 14, 25]


def test_portions_end_where_their_values_are_large_enough(rows, monkeypatch):
    log = ProgressLog()
    for number in range(7):
        log.announce(f"k{number}")
    size = len(log.rows[0][5])
    monkeypatch.setattr(progress_rows, "PORTION_BYTES", 2 * size)
    found = list(ProgressReader(log.registry.schema).read(rows(*log.rows), offsets=7))
    assert [len(portion) for portion in found] == [2, 2, 2, 1]
