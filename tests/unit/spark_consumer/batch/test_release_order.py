"""The rows of a batch: read once, cut between transactions, and decoded by known schemas."""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from itertools import pairwise

import pytest

from tests.topics import Topic
from tidegate.schemas.errors import SchemaError, SchemaNotFound, UnreachableError
from tidegate.schemas.wire_format import frame_prefix
from tidegate.spark_consumer.batch import spark_rows
from tidegate.spark_consumer.batch.bad_records import SchemaIds
from tidegate.spark_consumer.batch.change_counts import CollectedBatch
from tidegate.spark_consumer.batch.progress_rows import ROWS_TAKEN_WHOLE_MAX
from tidegate.spark_consumer.batch.release_order import SLICES_MAX, cuts_of, edges_of
from tidegate.spark_consumer.batch.rows import source_options
from tidegate.spark_consumer.batch.spark_rows import SparkRows
from tidegate.spark_consumer.core.batch_state import TopicIds
from tidegate.spark_consumer.core.limits import Limits
from tidegate.spark_consumer.core.plan import ReleaseBounds
from tidegate.spark_consumer.core.release import BatchStats
from tidegate.spark_consumer.errors import UndecodableRecord, UnknownSchema

# ---------------------------------------------------------------- read once
LIMITS = Limits(small_release_rows_max=100, small_release_bytes_max=64_000)


class Frame:
    def __init__(self):
        self.calls = []

    def where(self, _condition):
        return self

    def persist(self, _level):
        self.calls.append("persist")

    def unpersist(self):
        self.calls.append("unpersist")


class Progress:
    def read(self, frame, *, offsets):
        return [(frame, offsets)]

    def decode(self, rows):
        return list(rows)


@pytest.fixture
def jobs(monkeypatch):
    """The jobs that run; a batch is collected as long as `jobs.found` is one."""

    class Jobs(list):
        found = CollectedBatch(progress=("p",), changes=())

    jobs = Jobs()

    def collect(_frame, *, change_bytes_max):
        jobs.append(("collect", change_bytes_max))
        return jobs.found

    def count(_frame, **_bounds):
        jobs.append("count")
        return "counted by Spark"

    monkeypatch.setattr(spark_rows, "collect_batch", collect)
    monkeypatch.setattr(spark_rows, "count_changes", count)
    return jobs


def rows(frame, *, collects=False):
    return SparkRows(
        frame, segments=None, progress=Progress(), late=None, collects=collects, limits=LIMITS
    )


def counted(one, offsets):
    return one.count_changes(after_us=1, through_us=2, offsets=offsets)


@pytest.mark.usefixtures("jobs")
def test_progress_and_changes_are_persisted_by_the_first_reader_and_freed():
    for reads_progress in (False, True):
        frame = Frame()
        one = rows(frame)
        if reads_progress:
            assert one.read_progress(offsets=3, data_offsets=1) == [(frame, 3)]
            assert frame.calls == ["persist"]
        assert counted(one, 1) == counted(one, 1) == "counted by Spark"
        one.close()
        assert frame.calls == ["persist", "unpersist"]


@pytest.mark.parametrize(("offsets", "data_offsets"), [(3, 0), (ROWS_TAKEN_WHOLE_MAX + 1, 1)])
def test_progress_alone_and_a_long_history_are_read_as_they_come(offsets, data_offsets):
    frame = Frame()
    rows(frame).close()
    one = rows(frame)
    assert one.read_progress(offsets=offsets, data_offsets=data_offsets) == [(frame, offsets)]
    one.close()
    assert frame.calls == []


def test_a_small_batch_is_one_job_for_progress_and_changes(jobs):
    one = rows(Frame(), collects=True)
    assert one.read_progress(offsets=3, data_offsets=33) == ["p"]
    assert counted(one, 33) == BatchStats()
    # 64 rows, at most: the next power of two.
    assert jobs == [("collect", 1_000)]
    assert counted(rows(Frame(), collects=True), 100) == BatchStats()
    assert jobs[1:] == [("collect", 500)]


@pytest.mark.parametrize(
    ("offsets", "data_offsets", "collects", "expected"),
    [
        (3, 101, True, ["count"]),
        (ROWS_TAKEN_WHOLE_MAX + 1, 1, True, ["count"]),
        (3, 1, False, ["count"]),
        (3, 1, True, [("collect", 64_000), "count"]),  # too large for the driver: once only
    ],
)
def test_other_batches_are_left_to_spark(jobs, offsets, data_offsets, collects, expected):
    jobs.found = None
    frame = Frame()
    one = rows(frame, collects=collects)
    assert one.read_progress(offsets=offsets, data_offsets=data_offsets) == [(frame, offsets)]
    assert counted(one, data_offsets) == "counted by Spark"
    assert jobs == expected


def test_options_reach_the_client_and_promises_stay():
    given = {"sasl.mechanism": "PLAIN", "isolation.level": "read_uncommitted"}
    options = source_options("broker:9092", given)
    assert options["kafka.sasl.mechanism"] == "PLAIN"
    assert options["kafka.isolation.level"] == "read_committed"
    assert options["kafka.bootstrap.servers"] == "broker:9092"
    assert options["failOnDataLoss"] == "true"


# ---------------------------------------------------------------- cuts within a commit time
T = 7

BOUNDS = ReleaseBounds(3, 0, 10, ())


def begin_of(number, us=T):
    return us.to_bytes(8, "big") + f"t{number:03d}".encode() + b"\0"


def sizes(begins, edges):
    return [bisect_left(begins, high) - bisect_left(begins, low) for low, high in pairwise(edges)]


def test_one_commit_time_is_cut_into_equal_parts_between_transactions():
    begins = [begin_of(number) for number in range(40) for _ in range(10)]
    edges = edges_of(BOUNDS, cuts_of(begins, edges_of(BOUNDS), slice_rows=100))
    assert sizes(begins, edges) == [100, 100, 100, 100]
    # A transaction is in one part, however large.
    begins = sorted([begin_of(0)] * 3 + [begin_of(1)] * 500 + [begin_of(2)] * 3)
    assert cuts_of(begins, edges_of(BOUNDS), slice_rows=100) == (begin_of(1),)
    assert cuts_of([begin_of(1)] * 500, edges_of(BOUNDS), slice_rows=100) == ()
    # Slices that are small enough are not cut.
    bounds = ReleaseBounds(3, 0, 10, (), cuts_us=(6,))
    begins = [begin_of(n, us) for us, count in ((5, 100), (T, 300)) for n in range(count)]
    cuts = cuts_of(begins, edges_of(bounds), slice_rows=100)
    assert cuts == (begin_of(100), begin_of(200))


def test_there_are_so_many_slices_at_most():
    begins = [begin_of(number // 10, us) for us in range(1, 10) for number in range(5_000)]
    edges = edges_of(BOUNDS, cuts_of(begins, edges_of(BOUNDS), slice_rows=1))
    assert SLICES_MAX // 2 < len(edges) - 1 <= SLICES_MAX
    assert max(sizes(begins, edges)) < 3 * len(begins) / SLICES_MAX


@pytest.mark.parametrize("seed", range(20))
def test_cuts_ascend_within_the_bounds_and_before_some_transaction(seed):
    chance = random.Random(seed)
    begins = sorted(
        begin_of(chance.randrange(60), chance.randint(1, 10))
        for _ in range(chance.randrange(2_000))
    )
    cuts = cuts_of(begins, edges_of(BOUNDS), slice_rows=chance.randint(1, 500))
    assert list(cuts) == sorted(set(cuts))
    assert set(cuts) <= set(begins)
    assert all(0 < bisect_left(begins, cut) < bisect_right(begins, cut) for cut in cuts)


# ---------------------------------------------------------------- ids of schemas
A = Topic("a", {2: {"id": "INT64"}, 3: {"id": "INT64", "t": "STRING"}}, ["id"], key_id=1)

B = Topic("b", {5: {"id": "INT64"}}, ["id"], key_id=4)

GOOD = [(A.topic, 1, 2), (A.topic, 1, 3), (B.topic, 4, 5), (A.topic, 1, None)]

BAD = {
    "unknown value": ((A.topic, 1, 99), UnknownSchema, "does not know"),
    "unknown key": ((A.topic, 99, 2), UnknownSchema, "does not know"),
    "value of another topic": ((A.topic, 1, 5), UnknownSchema, "not one of its topic"),
    "key as value": ((A.topic, 1, 1), UnknownSchema, "not one of its topic"),
    "no Avro record": ((A.topic, 1, 7), UnknownSchema, "not one of its topic"),
    "unframed value": ((A.topic, 1, b"{}"), UndecodableRecord, "does not begin with a schema id"),
    "no key": ((A.topic, b"", 2), UndecodableRecord, "a key does not begin with a schema id"),
}


class Registry:
    def __init__(self):
        self.asked = []
        self.schemas = {**A.schemas, **B.schemas, 1: A.key_schema, 4: B.key_schema, 7: {}}

    def schema(self, schema_id):
        self.asked.append(schema_id)
        if schema_id not in self.schemas:
            raise SchemaNotFound("the registry has no schema with this id", schema_id=schema_id)
        return self.schemas[schema_id]


def frames(*records):
    def head(part):
        return frame_prefix(part) if isinstance(part, int) else part

    return [(topic, head(key), head(value)) for topic, key, value in records]


def find(topic, column, head):
    return {"topic_partition": 3, "offset": 7}


def test_ids_are_named_by_topic_and_looked_up_once():
    registry = Registry()
    ids = SchemaIds(registry.schema, sets_aside=False)
    for _ in range(2):
        assert ids.topics_of(frames(*GOOD), find=find) == (
            TopicIds(A.topic, (1,), (2, 3)),
            TopicIds(B.topic, (4,), (5,)),
        )
    assert sorted(registry.asked) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("fault", BAD)
def test_any_other_is_an_error_that_names_the_record_or_it_is_set_aside(fault):
    record, kind, text = BAD[fault]
    ids = SchemaIds(Registry().schema, sets_aside=False)
    with pytest.raises(UndecodableRecord, match=text) as caught:
        ids.topics_of(frames(*GOOD, record), find=find)
    assert type(caught.value) is kind
    assert caught.value.exit_code == 2
    fields = caught.value.fields
    assert (fields["topic"], fields["topic_partition"], fields["offset"]) == (A.topic, 3, 7)
    assert 'on_bad_record = "dead_letter"' in caught.value.hint
    # Where it is set aside none of its ids enters the plan.
    good = ids.topics_of(frames(*GOOD), find=find)
    ids = SchemaIds(Registry().schema, sets_aside=True)
    assert ids.topics_of(frames(record), find=find) == ()
    assert ids.topics_of(frames(*GOOD, record), find=find) == good


@pytest.mark.parametrize(
    "failure", [UnreachableError("the registry does not answer"), SchemaError("too many requests")]
)
def test_a_registry_that_gives_no_answer_makes_no_record_a_dead_letter(failure):
    def fail(_schema_id):
        raise failure

    ids = SchemaIds(fail, sets_aside=True)
    with pytest.raises(type(failure), match=str(failure)):
        ids.topics_of(frames(*GOOD), find=find)
