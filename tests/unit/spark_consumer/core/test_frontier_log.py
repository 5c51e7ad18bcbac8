"""What is stored of a frontier: each batch's part, how parts are joined, and what is dropped."""

import json

import pytest

from tidegate.lineage.frontier import Frontier, ProgressRow
from tidegate.lineage.subscription import Subscription
from tidegate.schemas.progress import (
    DataTopic,
    ProgressRecord,
    SlotProgress,
    StreamStarted,
    TokenSnapshot,
    TopicOffset,
)
from tidegate.schemas.topics import TopicNames
from tidegate.spark_consumer.core import part_log
from tidegate.spark_consumer.core.files import frontier_file, frontier_name
from tidegate.spark_consumer.core.frontier_log import FRONTIER_FORMAT, FrontierLog
from tidegate.spark_consumer.errors import NewerCheckpoint

SUBSCRIPTION = Subscription(TopicNames("bank"))
PROGRESS = "bank-progress"
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
    return json.loads(json.dumps(list(log.frontier.items_since(None))))


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


def test_a_batch_writes_what_has_changed_and_seldom_more(folder):
    folder.beat(1, changed=TOPICS)
    folder.store(1)
    whole = folder.written[-1]
    for batch in range(2, 102):
        folder.beat(batch, changed=2, read_through=batch)
        folder.store(batch)
    # Everything is written again once what has changed since is as much.
    assert sum(folder.written[2:]) < 8 * whole
    assert sorted(folder.written[2:])[50] < whole / 4
    assert len(folder.files) < 20


def test_a_batch_that_changes_nothing_writes_an_index(folder):
    folder.beat(1)
    folder.store(1)
    before = len(folder.files)
    folder.store(2)
    assert len(folder.files) <= before + 1
    assert items(folder.load()) == items(folder.log)


def test_no_file_is_larger_than_its_limit(folder, monkeypatch):
    monkeypatch.setattr(part_log, "FILE_BYTES_MAX", 9_000)
    for revision in range(1, 60):
        folder.beat(revision, changed=TOPICS, read_through=-1)
    folder.store(1)
    assert len(folder.files) > 8
    largest = max(map(len, folder.files.values()))
    assert largest < 25_000  # the item of the stream
    assert items(folder.load()) == items(folder.log)


def test_a_file_that_is_missing_is_noticed(folder):
    folder.beat(1)
    folder.store(1)
    parts = [file for file in folder.files if "-" in file]
    for part in parts:
        kept = folder.files.pop(part)
        assert folder.load() is None
        folder.files[part] = kept
    assert folder.load() is not None


def test_two_attempts_at_a_batch_write_different_files(folder):
    folder.beat(1)
    again = folder.load()
    again.frontier.apply(items(folder.log)[-1:])
    folder.store(1)
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
