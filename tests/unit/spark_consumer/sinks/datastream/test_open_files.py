"""Files end by rows and bytes, and never more than a few are in memory."""

from hypothesis import given
from hypothesis import strategies as st

from tidegate.spark_consumer.sinks.datastream.open_files import FileLimits, OpenFiles

CHANGES = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 60)), max_size=60)


def files_of(changes, limits):
    files, ended = OpenFiles(limits), []
    for number, (topic, size) in enumerate(changes):
        ended += files.add(topic, str(number).encode(), value_bytes=size)
        assert sum(one.value_bytes for one in files._open.values()) <= 4 * limits.bytes_max
    return [*ended, *files.rest()]


@given(CHANGES, st.integers(1, 9), st.integers(1, 100))
def test_each_change_is_in_one_file_and_files_of_a_table_are_in_order(changes, rows, size):
    limits = FileLimits(rows, size)
    found = files_of(changes, limits)
    for topic in "abc":
        own = [one for one in found if one.topic == topic]
        assert [one.number for one in own] == list(range(len(own)))
        records = [int(record) for one in own for record in one.records]
        assert records == [n for n, (name, _) in enumerate(changes) if name == topic]
    for one in found:
        sizes = [changes[int(record)][1] for record in one.records]
        assert 1 <= len(sizes) <= rows
        assert one.value_bytes == sum(sizes)
        assert sum(sizes[:-1]) < size


@given(CHANGES, st.integers(1, 9), st.integers(1, 100), st.integers(0, 60))
def test_what_follows_does_not_move_an_end(changes, rows, size, kept):
    """A release that failed in the middle may go on with other records."""
    limits = FileLimits(rows, size)
    files, ended = OpenFiles(limits), []
    for number, (topic, value_bytes) in enumerate(changes[:kept]):
        ended += files.add(topic, str(number).encode(), value_bytes=value_bytes)
    assert files_of(changes, limits)[: len(ended)] == ended


def test_a_file_ends_with_the_change_that_reaches_a_limit():
    sizes = [len(one.records) for one in files_of([("a", 1)] * 7, FileLimits(3, 100))]
    assert sizes == [3, 3, 1]
    sizes = [len(one.records) for one in files_of([("a", 50)] * 5, FileLimits(9, 100))]
    assert sizes == [2, 2, 1]
