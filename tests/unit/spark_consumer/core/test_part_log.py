"""Lists of files that grow: few of them, each change written a few times, and nothing lost."""

from __future__ import annotations

import json
from functools import cache
from random import Random

import pytest

from tests.unit.spark_consumer.core.core_building import PROGRESS, SUBSCRIPTION, as_json
from tidegate.lineage.frontier import Frontier, ProgressRow
from tidegate.schemas.progress import (
    DataTopic,
    ProgressRecord,
    SlotProgress,
    StreamStarted,
    TokenSnapshot,
    TopicOffset,
)
from tidegate.spark_consumer.checkpoint.writers import is_needed, last_number
from tidegate.spark_consumer.core import part_log
from tidegate.spark_consumer.core.batch_state import (
    Segment,
    SegmentPart,
    State,
)
from tidegate.spark_consumer.core.file_names import frontier_file, frontier_name
from tidegate.spark_consumer.core.part_log import ALL_IN_THE_STATE, FRONTIER_FORMAT, FrontierLog
from tidegate.spark_consumer.core.transition import first_kept
from tidegate.spark_consumer.errors import CheckpointMismatch, NewerCheckpoint

# ---------------------------------------------------------------- segments
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


class SegmentFolder:
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
    folder, segments = SegmentFolder(), []
    for number in range(300):
        segments.append(segment(number))
        folder.store(segments)
    assert folder.load() == folder.state
    whole = sum(len(json.dumps(one.snapshot())) for one in segments)
    assert whole > 500_000
    assert sum(folder.written) < 300 * whole / 4
    assert max(len(folder.files[f]) for f in folder.files if f.startswith("states/")) < 200_000
    assert len(folder.lists) < 16


def test_no_file_is_larger_than_its_limit_and_segments_that_are_gone_leave_nothing():
    folder = SegmentFolder()
    folder.store([segment(number) for number in range(6_000)])
    assert len(folder.lists) > 3
    assert folder.largest < FILE_MAX
    folder.store(folder.state.segments[3_000:])
    assert folder.largest < FILE_MAX
    assert folder.load() == folder.state
    folder.store(folder.state.segments[:2])
    assert folder.state.dropped_lists
    folder.store([])
    assert folder.lists == []


@pytest.mark.parametrize("seed", range(15))
def test_segments_that_are_loaded_are_those_that_were_stored(seed, monkeypatch):
    random = Random(seed)
    monkeypatch.setattr(part_log, "FILE_BYTES_MAX", random.choice((1, 5_000, 4_000_000)))
    folder, segments = SegmentFolder(own_max=random.choice((0, 1, 3))), []
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


def test_a_list_that_is_missing_is_named_and_two_attempts_write_different_ones():
    folder = SegmentFolder(own_max=1)
    folder.store([segment(number) for number in range(3)])
    folder.store([segment(number) for number in range(1, 9)])
    for file in [file for part in folder.state.listed.parts for file in part.files]:
        kept = folder.files.pop(file)
        with pytest.raises(CheckpointMismatch, match=file):
            folder.load()
        folder.files[file] = kept
    segments = [segment(number) for number in range(3)]
    first, second = (
        {file for file, _ in ALL_IN_THE_STATE.write(segments, batch=7, writer=w, own_max=1)[1]}
        for w in (1, 2)
    )
    assert first
    assert second
    assert not first & second


# ---------------------------------------------------------------- frontiers
TOPICS = 200

START = StreamStarted(
    "s", "g", 0, None, "f", 1, "id",
    tuple(DataTopic(f"bank.t{n}", f"id{n}", 3, n + 1) for n in range(TOPICS)), (),
)  # fmt: skip


class Folder:
    """A `gate` folder, and a reader whose batches each read one heartbeat."""

    def __init__(self):
        self.files, self.names, self.written = {}, [], []
        self.offsets = dict.fromkeys(range(TOPICS), 0)
        self.log = FrontierLog(Frontier(SUBSCRIPTION))

    def fold(self, offset, body, *, read_through=0):
        topics = {f"bank.t{n}": {0: read_through + 1, 1: 1, 2: 1} for n in range(TOPICS)}
        rows = [ProgressRow(0, offset, ProgressRecord("e", "w", body))]
        self.log.frontier.fold(rows, reached={PROGRESS: {0: offset + 1}, **topics})

    def beat(self, revision, *, changed=1, **reads):
        """A heartbeat of which so many topics have moved to the revision's number."""
        self.offsets |= dict.fromkeys(range(changed), revision)
        vector = tuple(TopicOffset(f"bank.t{n}", 0, at) for n, at in self.offsets.items())
        token = TokenSnapshot("t", 0, (), (), revision)
        self.fold(revision, SlotProgress(0, revision, 0, 0, vector, (token,)), **reads)

    def store(self, batch, *, writer=1):
        name = frontier_name(batch, writer=writer)
        stored = self.log.write(name, code="1")
        files = {file: json.dumps(content) for file, content in stored.files}
        assert not set(files) & set(self.files)
        self.files |= files
        for gone in stored.dropped:
            for file in [f for f in self.files if f"{f}/".startswith(f"{gone}/")]:
                del self.files[file]
        self.names.append(name)
        self.written.append(sum(map(len, files.values())))

    def load(self, name=None):
        def read(file):
            return json.loads(self.files[file]) if file in self.files else None

        name = name or self.names[-1]
        return FrontierLog.restore(name, read(frontier_file(name)), read, SUBSCRIPTION)


def items(log):
    return as_json(list(log.frontier.items_since(None)))


@pytest.fixture
def folder():
    folder = Folder()
    folder.fold(0, START)
    folder.store(0)
    return folder


def test_what_is_loaded_is_what_was_stored_and_goes_on_alike(folder):
    for batch in range(1, 40):
        folder.beat(batch, read_through=batch // 2)
        folder.store(batch)
        found = folder.load()
        assert items(found) == items(folder.log)
        if batch % 7 == 0:
            folder.log = found


def test_who_owns_the_slots_is_stored_and_an_index_without_it_is_read(folder):
    folder.beat(1)
    folder.store(1)
    assert folder.load().frontier.workers == {0: "w"}
    file = frontier_file(folder.names[-1])
    index = json.loads(folder.files[file])
    del index["workers"]  # as an older program stores it
    folder.files[file] = json.dumps(index)
    assert folder.load().frontier.workers == {}
    assert items(folder.load()) == items(folder.log)


def test_a_file_that_is_missing_is_noticed_and_two_attempts_write_different_ones(folder):
    folder.beat(1)
    again = folder.load()
    again.frontier.apply(items(folder.log)[-1:])
    folder.store(1)
    for part in [file for file in folder.files if "-" in file]:
        kept = folder.files.pop(part)
        assert folder.load() is None
        folder.files[part] = kept
    assert folder.load() is not None
    folder.log = again
    folder.beat(1)
    folder.store(1, writer=2)


def test_a_frontier_of_an_older_program_is_continued_and_dropped():
    stored = {
        "epoch": "e",
        "stream": {"name": "s", "slots": 1, "end_ns": None, "key_schema_ids": {"bank.t0": 1}},
        "slots": [
            {
                "slot": 0, "folded_through": 4, "finished_tokens": 0, "waiting": [],
                "announced": [], "open": None,
                "current": {
                    "revision": 4, "includes": 0, "vector": {"bank.t0": {"0": 4}}, "tokens": 1,
                    "slowest": [4, "t"],
                },
            }
        ],
    }  # fmt: skip
    folder = Folder()
    folder.files["frontiers/000000000006.json"] = json.dumps(stored)
    folder.log = folder.load("000000000006")
    assert folder.log.frontier.watermark().us == 4
    folder.beat(5, read_through=9)
    folder.store(7)
    assert "frontiers/000000000006.json" not in folder.files
    assert items(folder.load()) == items(folder.log)
    assert folder.load().frontier.watermark().us == 5
    assert folder.load().frontier.key_schema_id("bank.t0") == 1


def test_an_index_of_a_newer_program_names_the_version_to_install():
    index = {"format": FRONTIER_FORMAT + 1, "code": "9.1.0"}
    with pytest.raises(NewerCheckpoint, match=r"Install Tidegate 9\.1\.0"):
        FrontierLog.restore("000000000007/1", index, {}.get, SUBSCRIPTION)


# ---------------------------------------------------------------- manifests and numbers
@pytest.mark.parametrize(("kept", "step"), [(1, 1), (15, 1), (200, 20), (5_000, 100)])
def test_about_so_many_are_kept_and_dropped_in_steps(kept, step):
    first = 0
    for number in range(3 * kept + 500):
        due = first_kept(number, number, mirrored=number, kept=kept)
        if due is not None:
            assert due % step == 0
            assert due > first
            first = due
        assert kept <= number + 1 - first < kept + step or first == 0
    assert first > kept


def test_the_manifest_of_the_mirrors_cut_is_kept_however_old_it_is():
    assert all(first_kept(n, n, mirrored=n, kept=0) is None for n in range(1_000))  # no limit
    found = [first_kept(50, 50, mirrored=mirrored, kept=3) for mirrored in (50, 7, -1)]
    assert found == [48, 7, None]


@pytest.mark.parametrize("seed", range(20))
def test_no_release_of_the_batch_is_dropped_and_none_is_missed(seed):
    random = Random(seed)
    kept, number, first = random.choice((1, 3, 40)), 0, 0
    for _ in range(300):
        last = number + random.choice((0, 0, 2, 30))
        due = first_kept(number, last, mirrored=number, kept=kept)
        if due is not None:
            assert 0 < due <= number
            first = due
        number = last + 1
    assert number - first < kept + 4 + 2 * 31


@pytest.mark.parametrize("first", [0, 1, 7])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 31, 32, 33, 100_000])
def test_the_last_one_is_found_with_few_questions(first, count):
    asked = []

    def is_there(number):
        asked.append(number)
        return first <= number < first + count

    assert last_number(first, is_there) == first + count - 1
    assert len(asked) <= 2 * count.bit_length() + 2


def searched(newest):
    """The numbers that exist among those that a search for the newest one asks for."""
    found = set()

    def is_there(number):
        if number <= newest:
            found.add(number)
        return number <= newest

    assert last_number(1, is_there) == newest
    return found


@pytest.mark.parametrize("newest", [1, 2, 3, 7, 8, 31, 100, 127, 128, 129, 200])
def test_needed_is_what_this_or_a_later_search_asks_for(newest):
    later = set().union(*(searched(number) for number in range(newest, 1_100)))
    for number in range(1, newest):
        assert is_needed(number, newest=newest) or number not in later


def test_few_numbers_are_needed_and_what_is_not_needed_never_is_again():
    assert sum(is_needed(number, newest=100_000) for number in range(1, 100_000)) < 40
    for number in range(1, 200):
        needed = [is_needed(number, newest=newest) for newest in range(number + 1, 600)]
        assert needed == sorted(needed, reverse=True)
