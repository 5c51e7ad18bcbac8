"""How segments are stored: small states, files in proportion to what changed, nothing lost."""

import json
from functools import cache
from random import Random

import pytest

from tidegate.spark_consumer.core import part_log
from tidegate.spark_consumer.core.batch_state import (
    Segment,
    SegmentPart,
    State,
)
from tidegate.spark_consumer.core.segment_list import ALL_IN_THE_STATE
from tidegate.spark_consumer.errors import CheckpointMismatch

FILE_MAX = 5_000_000


@cache
def segment(number, *, rows=250_000):
    """A segment as large as any: all its quantiles and parts differ."""
    first = 1_700_000_000_000_000 + number * 1_000_000
    quantiles = tuple(first + 10_000 * n for n in range(1, 65))
    parts = tuple(
        SegmentPart(first + 40_000 * (n + 1), rows // 16, 2**64 - 1 - number) for n in range(16)
    )
    name = f"{number:012d}-000/1234"
    return Segment(name, first, first + 640_000, rows, quantiles, parts, 536_870_912)


class Folder:
    """A `gate` folder, and the state that each batch leaves in it."""

    def __init__(self, *, own_max=64, writer=1):
        self.own_max, self.writer = own_max, writer
        self.files, self.written, self.largest = {}, [], 0
        self.state = State("bank", "q")

    def store(self, segments):
        """What a batch writes; what the batch before has dropped is deleted first."""
        before = self.state
        for gone in before.dropped_lists:
            self.files = {f: c for f, c in self.files.items() if not f.startswith(f"{gone}/")}
        batch = before.batch + 1
        listed, files = before.listed.write(
            segments, batch=batch, writer=self.writer, own_max=self.own_max
        )
        self.state = State(
            "bank", "q", batch=batch, segments=tuple(segments), listed=listed,
            dropped_lists=tuple(sorted(before.listed.folders - listed.folders)),
        )  # fmt: skip
        contents = {file: json.dumps(content) for file, content in files}
        contents[f"states/{batch}.json"] = json.dumps(self.state.snapshot())
        assert not set(contents) & set(self.files)
        self.files |= contents
        self.written.append(sum(map(len, contents.values())))
        self.largest = max(self.largest, *map(len, contents.values()))

    def load(self):
        data = json.loads(self.files[f"states/{self.state.batch}.json"])
        read = lambda file: json.loads(self.files[file]) if file in self.files else None  # noqa: E731
        return State.restore(data, read)

    @property
    def lists(self):
        return [file for file in self.files if file.startswith("lists/")]


def test_a_thousand_batches_write_what_has_changed():
    folder, segments = Folder(), []
    for number in range(600):
        segments.append(segment(number))
        folder.store(segments)
    assert folder.load() == folder.state
    whole = sum(len(json.dumps(one.snapshot())) for one in segments)
    assert whole > 1_000_000
    assert sum(folder.written) < 600 * whole / 8
    assert max(len(folder.files[f]) for f in folder.files if f.startswith("states/")) < 200_000
    assert len(folder.lists) < 16


def test_no_file_is_larger_than_its_limit_whatever_the_number_of_segments():
    folder = Folder()
    folder.store([segment(number) for number in range(6_000)])
    assert len(folder.lists) > 3
    assert folder.largest < FILE_MAX
    folder.store(folder.state.segments[3_000:])
    assert folder.largest < FILE_MAX
    assert folder.load() == folder.state


@pytest.mark.parametrize("seed", range(30))
def test_what_is_loaded_is_what_was_stored_and_goes_on_alike(seed, monkeypatch):
    random = Random(seed)
    monkeypatch.setattr(part_log, "FILE_BYTES_MAX", random.choice((1, 5_000, 4_000_000)))
    folder, segments = Folder(own_max=random.choice((0, 1, 3))), []
    for number in range(120):
        if random.random() < 0.1:
            segments = segments[random.randrange(len(segments) + 1) :]
        segments = [one for one in segments if random.random() > random.choice((0, 0.1))]
        segments += [segment(number * 10 + n) for n in range(random.choice((0, 1, 1, 3)))]
        folder.store(segments)
        found = folder.load()
        assert found == folder.state
        if random.random() < 0.3:
            folder.state, folder.writer = found, folder.writer + 1


def test_segments_that_are_gone_leave_nothing():
    folder = Folder(own_max=4)
    folder.store([segment(number) for number in range(1_000)])
    for end in range(1, 900):
        folder.store([segment(number) for number in range(end, end + 20)])
    live = sum(len(json.dumps(one.snapshot())) for one in folder.state.segments)
    assert sum(len(folder.files[file]) for file in folder.lists) < 8 * live
    folder.store(folder.state.segments[:2])
    assert folder.state.dropped_lists
    folder.store([])
    assert folder.lists == []


def test_a_few_segments_are_in_the_state_alone():
    folder = Folder(own_max=4)
    folder.store([segment(number) for number in range(4)])
    assert not {"segment_parts", "removed_segments"} & folder.state.snapshot().keys()
    folder.store([segment(number) for number in range(5)])
    # The folder is named until it was deleted.
    folder.store([segment(number) for number in range(2)])
    assert folder.state.snapshot()["dropped_lists"]
    folder.store([segment(number) for number in range(2)])
    assert not folder.state.snapshot()["dropped_lists"]


def test_a_file_that_is_missing_is_a_named_error():
    folder = Folder(own_max=1)
    folder.store([segment(number) for number in range(3)])
    folder.store([segment(number) for number in range(1, 9)])
    for file in [file for part in folder.state.listed.parts for file in part.files]:
        kept = folder.files.pop(file)
        with pytest.raises(CheckpointMismatch, match=file):
            folder.load()
        folder.files[file] = kept


def test_two_attempts_at_a_batch_write_different_files():
    segments = [segment(number) for number in range(3)]
    files = [
        {file for file, _ in ALL_IN_THE_STATE.write(segments, batch=7, writer=w, own_max=1)[1]}
        for w in (1, 2)
    ]
    assert all(files)
    assert not files[0] & files[1]
