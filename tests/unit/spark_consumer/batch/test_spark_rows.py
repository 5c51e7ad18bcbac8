"""The rows of a batch: persisted on first use, freed once."""

from tidegate.spark_consumer.batch.spark_rows import SparkRows


class Frame:
    def __init__(self):
        self.calls = []

    def persist(self, _level):
        self.calls.append("persist")

    def unpersist(self):
        self.calls.append("unpersist")


class Progress:
    def read(self, frame, *, offsets):
        return [(frame, offsets)]


def rows(frame):
    return SparkRows(frame, segments=None, progress=Progress(), late=None)


def test_rows_are_persisted_by_the_first_reader_only():
    frame = Frame()
    one = rows(frame)
    assert one.read_progress(offsets=3) == [(frame, 3)]
    one.read_progress(offsets=4)
    one.close()
    assert frame.calls == ["persist", "unpersist"]


def test_rows_that_nobody_reads_cost_nothing():
    frame = Frame()
    rows(frame).close()
    assert frame.calls == []
