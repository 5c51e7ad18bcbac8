"""The runs that work on a folder."""

import pytest

from tidegate.schemas.errors import InvariantViolation
from tidegate.spark_consumer.checkpoint.writers import Writers
from tidegate.spark_consumer.errors import WriterReplaced


class Files:
    def __init__(self):
        self.content = {}
        self.reads = 0

    def read_json(self, name):
        self.reads += 1
        return self.content.get(name)

    def create(self, name, content):
        if name in self.content:
            return False
        self.content[name] = content
        return True


def test_the_youngest_run_is_the_writer():
    files = Files()
    runs = [Writers(files) for _ in range(3)]
    assert [run.take() for run in runs] == [1, 2, 3]
    runs[-1].require()
    for replaced in runs[:-1]:
        with pytest.raises(WriterReplaced, match="another run"):
            replaced.require()


def test_a_run_that_took_nothing_is_no_writer():
    with pytest.raises(WriterReplaced, match="has not taken"):
        Writers(Files()).require()


def test_a_run_takes_a_folder_once():
    writers = Writers(Files())
    writers.take()
    with pytest.raises(InvariantViolation):
        writers.take()


def test_after_many_starts_the_writer_is_found_with_few_reads():
    files = Files()
    files.content = {f"writers/{number:012d}": {} for number in range(1, 5_001)}
    assert Writers(files).take() == 5_001
    assert files.reads < 30
