"""The runs that work on a folder."""

from __future__ import annotations

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

    def names(self, folder):
        return sorted(name.removeprefix(f"{folder}/") for name in self.content)

    def write_json(self, name, content):
        self.content[name] = content

    def delete(self, names):
        for name in names:
            del self.content[name]


def test_the_youngest_run_is_the_writer():
    files = Files()
    runs = [Writers(files) for _ in range(3)]
    assert [run.take() for run in runs] == [1, 2, 3]
    runs[-1].require()
    for replaced in runs[:-1]:
        with pytest.raises(WriterReplaced, match="another run"):
            replaced.require()
    with pytest.raises(WriterReplaced, match="has not taken"):
        Writers(Files()).require()
    with pytest.raises(InvariantViolation):
        runs[-1].take()  # a run takes a folder once


def test_after_many_starts_the_writer_is_found_with_few_reads():
    files = Files()
    files.content = {f"writers/{number:012d}": {} for number in range(1, 5_001)}
    assert Writers(files).newest() == 5_000
    assert files.reads < 30
    for number in range(5_001, 5_008):
        assert Writers(files).take() == number
    assert len(files.content) < 130


class Killed(Exception):
    pass


class Dying(Files):
    """Dies before one of its changes, and counts them."""

    def __init__(self, content, *, dies_at=None):
        super().__init__()
        self.content, self.changes, self.dies_at = content, 0, dies_at

    def step(self):
        self.changes += 1
        if self.changes == self.dies_at:
            raise Killed

    def create(self, name, content):
        self.step()
        return super().create(name, content)

    def write_json(self, name, content):
        self.step()
        self.content[name] = content

    def delete(self, names):
        for name in names:
            self.step()
            del self.content[name]


def is_refused(run):
    try:
        run.require()
    except WriterReplaced:
        return True
    return False


def test_a_kill_at_any_step_of_a_start_leaves_one_writer_and_the_next_start_tidies():
    content, former = {}, []
    for _ in range(40):  # files of a program that kept them all
        former.append(Writers(Dying(content), kept=1_000))
        former[-1].take()
    counted = Dying(dict(content))
    Writers(counted, kept=5).take()
    assert counted.changes > 30
    for dies_at in range(2, counted.changes + 1):
        copy = dict(content)
        with pytest.raises(Killed):
            Writers(Dying(copy, dies_at=dies_at), kept=5).take()
        seen = Dying(copy)
        for run in former:
            run._files = seen
            assert is_refused(run)
        assert Writers(seen).newest() == 41
        assert Writers(seen, kept=5).take() == 42
        assert len(copy) < 5 + 14


def test_a_late_deletion_by_an_older_run_is_harmless():
    files = Files()
    for _ in range(60):
        Writers(files, kept=5).take()
    late = Writers(files, kept=5)
    late.number = 20
    late._delete_old(20)
    assert Writers(files).newest() == 60
    assert Writers(files, kept=5).take() == 61
