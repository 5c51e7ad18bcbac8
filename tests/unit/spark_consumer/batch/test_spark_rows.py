"""The rows of a batch: persisted on first use, freed once; a small batch is collected once."""

import pytest

from tidegate.spark_consumer.batch import spark_rows
from tidegate.spark_consumer.batch.collected_batch import CollectedBatch
from tidegate.spark_consumer.batch.progress_rows import ROWS_TAKEN_WHOLE_MAX
from tidegate.spark_consumer.batch.spark_rows import SparkRows
from tidegate.spark_consumer.core.batch_stats import BatchStats
from tidegate.spark_consumer.core.gate import Limits

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
def test_changes_are_persisted_by_the_first_reader_only():
    frame = Frame()
    one = rows(frame)
    assert counted(one, 1) == "counted by Spark"
    counted(one, 1)
    one.close()
    assert frame.calls == ["persist", "unpersist"]


@pytest.mark.usefixtures("jobs")
def test_progress_and_changes_are_read_from_kafka_once():
    frame = Frame()
    one = rows(frame)
    assert one.read_progress(offsets=3, data_offsets=1) == [(frame, 3)]
    assert frame.calls == ["persist"]
    assert counted(one, 1) == "counted by Spark"
    one.close()
    assert frame.calls == ["persist", "unpersist"]


@pytest.mark.parametrize(("offsets", "data_offsets"), [(3, 0), (ROWS_TAKEN_WHOLE_MAX + 1, 1)])
def test_progress_alone_and_a_long_history_are_read_as_they_come(offsets, data_offsets):
    frame = Frame()
    one = rows(frame)
    assert one.read_progress(offsets=offsets, data_offsets=data_offsets) == [(frame, offsets)]
    one.close()
    assert frame.calls == []


def test_rows_that_nobody_reads_cost_nothing():
    frame = Frame()
    rows(frame).close()
    assert frame.calls == []


def test_a_small_batch_is_one_job_for_progress_and_changes(jobs):
    one = rows(Frame(), collects=True)
    assert one.read_progress(offsets=3, data_offsets=33) == ["p"]
    assert counted(one, 33) == BatchStats()
    # 64 rows, at most: the next power of two.
    assert jobs == [("collect", 1_000)]


def test_changes_alone_are_collected_too(jobs):
    assert counted(rows(Frame(), collects=True), 100) == BatchStats()
    assert jobs == [("collect", 500)]


@pytest.mark.parametrize(
    ("offsets", "data_offsets", "collects"),
    [(3, 101, True), (ROWS_TAKEN_WHOLE_MAX + 1, 1, True), (3, 1, False)],
    ids=["many changes", "much progress", "without delta-rs"],
)
def test_other_batches_are_left_to_spark(jobs, offsets, data_offsets, collects):
    frame = Frame()
    one = rows(frame, collects=collects)
    assert one.read_progress(offsets=offsets, data_offsets=data_offsets) == [(frame, offsets)]
    assert counted(one, data_offsets) == "counted by Spark"
    assert jobs == ["count"]


def test_a_batch_that_is_too_large_for_the_driver_is_collected_once_only(jobs):
    jobs.found = None
    frame = Frame()
    one = rows(frame, collects=True)
    assert one.read_progress(offsets=3, data_offsets=1) == [(frame, 3)]
    assert counted(one, 1) == "counted by Spark"
    assert jobs == [("collect", 64_000), "count"]
