"""Parts of a growing list: few of them, each change written a few times, files of limited size."""

import pytest

from tidegate.spark_consumer.core import part_log
from tidegate.spark_consumer.core.part_log import with_changes


class Numbers:
    """A list of numbers that only grows; a mark is its length."""

    def __init__(self):
        self.parts, self.files, self.length, self.written = (), {}, 0, 0

    def add(self, count):
        """Add so many numbers, as one batch."""
        since, self.length = self.length, self.length + count
        self.parts, files = with_changes(
            self.parts,
            since=since,
            items_since=lambda mark: range(mark, self.length),
            file=lambda number: f"{self.length}-{number}",
        )
        self.files |= dict(files)
        self.written += sum(len(content["items"]) for _, content in files)

    @property
    def items(self):
        return [n for part in self.parts for file in part.files for n in self.files[file]["items"]]


@pytest.fixture
def numbers():
    return Numbers()


def test_the_parts_hold_everything_once(numbers):
    for count in (5, 1, 0, 1, 7, 2, 2, 100, 1):
        numbers.add(count)
        assert numbers.items == list(range(numbers.length))


def test_each_item_is_written_a_few_times_and_there_are_few_parts(numbers):
    for _ in range(1_000):
        numbers.add(1)
    assert len(numbers.parts) < 12
    assert numbers.written < 12 * 1_000


def test_a_large_part_is_left_alone_by_small_ones(numbers):
    numbers.add(1_000)
    first = numbers.parts[0]
    for _ in range(100):
        numbers.add(1)
    assert numbers.parts[0] == first


def test_nothing_new_gives_no_file(numbers):
    numbers.add(3)
    before, numbers.written = numbers.parts, 0
    numbers.add(0)
    assert numbers.parts == before
    assert numbers.written == 0


def test_files_end_at_their_limit_and_a_larger_item_has_its_own(numbers, monkeypatch):
    monkeypatch.setattr(part_log, "FILE_BYTES_MAX", 4)
    numbers.length = 8
    numbers.add(4)
    (part,) = numbers.parts
    assert [numbers.files[file]["items"] for file in part.files] == [[8, 9, 10], [11]]
    monkeypatch.setattr(part_log, "FILE_BYTES_MAX", 1)
    numbers.add(30)
    assert [len(numbers.files[file]["items"]) for file in numbers.parts[-1].files] == [1] * 34
