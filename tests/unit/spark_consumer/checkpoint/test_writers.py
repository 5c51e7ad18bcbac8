"""The runs that work on a folder."""

import pytest

from tidegate.schemas.errors import InvariantViolation
from tidegate.spark_consumer.checkpoint.writers import Writers
from tidegate.spark_consumer.errors import WriterReplaced


class Files:
    """Files whose listing shows `listed` of them."""

    def __init__(self, *, listed=True):
        self.content = {}
        self.listed = listed

    def read_json(self, name):
        return self.content.get(name)

    def names(self, folder):
        assert folder == "writers"
        return sorted(name.rpartition("/")[2] for name in self.content) if self.listed else []

    def create(self, name, content):
        if name in self.content:
            return False
        self.content[name] = content
        return True


@pytest.mark.parametrize("listed", [True, False])
def test_the_youngest_run_is_the_writer_whatever_a_listing_shows(listed):
    files = Files(listed=listed)
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


def test_other_files_in_the_folder_are_no_writers():
    files = Files()
    files.content["writers/.000000000009.tmp"] = {}
    assert Writers(files).take() == 1
