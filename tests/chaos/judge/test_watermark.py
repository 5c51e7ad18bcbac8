"""The judge's reader: the protocol's own example, and what it must notice."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.judge.topics import DataEntry, ProgressEntry, Topics
from tests.chaos.judge.watermark import Reader, reading_orders, replay
from tidegate.local_stack.judge.log import Place

TOPICS = Topics("orders")
ITEMS = "orders.items"
PROGRESS = "orders-progress"


def heartbeat(slot, offset, revision, *, vector=(), tokens=(), includes=-1, **more):
    """A complete snapshot; `vector` is of (topic, topic partition, offset), tokens are times."""
    body = {
        "slot": slot,
        "revision": revision,
        "includes": includes,
        "vector": [
            dict(zip(("topic", "topic_partition", "offset"), v, strict=True)) for v in vector
        ],
        "tokens": [
            {"token": f"t{number}", "number": number, "watermark_us": at_us}
            for number, at_us in enumerate(tokens)
        ],
        "chunk": 0,
        "chunks": 1,
        **more,
    }
    return ProgressEntry(slot, offset, 0, "SLOT_PROGRESS", "e", body)


def changes(offset, revision, *, vector=(), slowest=2_000, token="t0", **more):
    """The only token moves on, unless `more` says otherwise."""
    said = {
        "added": [], "moved": [{"number": 0, "watermark_us": slowest}], "removed": [], "open": 1,
        "slowest": {"token": token, "watermark_us": slowest}, **more,
    }  # fmt: skip
    entry = heartbeat(0, offset, revision, vector=vector, **said)
    return replace(entry, kind="SLOT_CHANGES")


def minute(offset, revision, *, vector=(), at_us=1_000, open_tokens=1):
    said = {"slowest": {"token": "t0", "watermark_us": at_us}, "open": open_tokens, "minute": 0}
    entry = heartbeat(0, offset, revision, vector=vector, **said)
    return replace(entry, kind="SLOT_WATERMARK")


def started(offset=0, slots=1, epoch="e"):
    return ProgressEntry(0, offset, 0, "STREAM_STARTED", epoch, {"slots": slots})


def announced(slot, offset, child, parent, start_us):
    body = {"child": {"token": child, "start_ns": start_us * 1_000}, "parent": parent}
    return ProgressEntry(slot, offset, 0, "PARTITION_ANNOUNCED", "e", body)


def change(offset, commit_us, number=0):
    place = Place(commit_us, "tx", (0, 0), 0)
    return DataEntry(ITEMS, number, offset, 0, ITEMS, b"k", place, b"U", b"", {}, None)


def read_all(*entries):
    reader = Reader(TOPICS)
    for entry in entries:
        reader.read(entry)
        reader.advance()
    return reader


def example(repository):
    text = (repository / "docs" / "protocol.md").read_text()
    match = re.search(r"<!-- example: watermark -->\n```json\n(.*?)```", text, re.DOTALL)
    return json.loads(match[1])


def test_the_example_of_the_protocol(repository: Path):
    given = example(repository)
    reader = Reader(TOPICS)
    for step in given["steps"]:
        for slot, offset, record in step["read"]:
            ((kind, body),) = record.items()
            match kind:
                case "StreamStarted":
                    entry = started(offset, body["slots"])
                case "SlotProgress":
                    vector = [
                        (topic, int(number), at)
                        for topic, ends in body["vector"].items()
                        for number, at in ends.items()
                    ]
                    entry = heartbeat(
                        slot,
                        offset,
                        body["revision"],
                        vector=vector,
                        tokens=body["tokens"].values(),
                        includes=body["includes"],
                    )
                case "PartitionAnnounced":
                    entry = announced(slot, offset, body["child"], body["parent"], body["start_us"])
                case _:
                    entry = ProgressEntry(slot, offset, 0, "PARTITION_FINISHED", "e", body)
            reader.read(entry)
        for topic, ends in step["next"].items():
            for number, at in ends.items():
                reader.reach((topic, int(number)), at)
        assert reader.advance() == step["watermark_us"], step["note"]
    assert reader.broken == []


def test_a_change_that_the_watermark_has_passed_is_a_violation():
    reader = read_all(
        started(), heartbeat(0, 1, 1, tokens=[1_000]), change(0, 1_001), change(1, 1_000)
    )

    assert len(reader.violations) == 1
    assert "orders.items/0@1: 0 µs" in reader.violations[0]


def test_no_reader_reads_the_dead_letters():
    letter = replace(change(0, 500), topic="orders-dead-letter")
    reader = read_all(started(), heartbeat(0, 1, 1, tokens=[1_000]), letter)

    assert reader.violations == []


def test_a_snapshot_counts_when_its_vector_is_reached():
    reader = read_all(started(), heartbeat(0, 1, 1, vector=[(ITEMS, 0, 4)], tokens=[1_000]))
    assert reader.watermark_us is None

    reader.read(change(3, 900))
    assert reader.advance() is None
    reader.reach((ITEMS, 0), 5)
    assert reader.advance() == 1_000


def test_changes_continue_the_vector_of_the_snapshot_before_them():
    first = heartbeat(0, 1, 1, vector=[(ITEMS, 0, 4)], tokens=[1_000])
    reader = read_all(started(), first, changes(2, 2, vector=[(ITEMS, 1, 0)]))
    reader.reach((ITEMS, 1), 1)
    assert reader.advance() is None

    reader.reach((ITEMS, 0), 5)
    assert reader.advance() == 2_000


def test_changes_add_move_and_remove_tokens():
    new = {"token": "new", "number": 1, "watermark_us": 3_000}
    reader = read_all(
        started(),
        heartbeat(0, 1, 1, tokens=[1_000]),
        changes(2, 2, added=[new], open=2),
        minute(3, 2, at_us=2_000, open_tokens=2),
        changes(4, 3, removed=[0], moved=[], slowest=3_000, token="new"),
        minute(5, 1),
    )
    assert (reader.watermark_us, reader.broken) == (3_000, [])


def test_changes_that_continue_nothing_are_passed_over():
    reader = read_all(started(), heartbeat(0, 1, 1, tokens=[1_000]), changes(2, 3, slowest=9_000))

    assert reader.watermark_us == 1_000


def test_an_announcement_holds_the_watermark_until_a_snapshot_includes_it():
    reader = read_all(
        started(), heartbeat(0, 1, 1, tokens=[5_000]), announced(0, 2, "B", "P", 7_000)
    )
    assert reader.watermark_us == 5_000

    reader.read(heartbeat(0, 3, 2, tokens=[9_000], includes=1))
    assert reader.advance() == 6_999
    reader.read(heartbeat(0, 4, 3, tokens=[9_500], includes=2))
    assert reader.advance() == 9_500


def test_chunks_are_one_snapshot_and_what_is_left_of_a_set_does_not_count():
    parts = [
        heartbeat(0, 2 + n, 2, tokens=[at_us], vector=vector, chunk=n, chunks=2)
        for n, (at_us, vector) in enumerate([(3_000, [(ITEMS, 0, 7)]), (2_000, [])])
    ]
    before = (started(), heartbeat(0, 1, 1, tokens=[1_000]))
    reader = read_all(*before, *parts)
    assert reader.watermark_us == 1_000
    reader.reach((ITEMS, 0), 8)
    assert reader.advance() == 2_000

    assert read_all(*before, parts[1]).watermark_us == 1_000
    assert read_all(*before, parts[0]).watermark_us == 1_000


@pytest.mark.parametrize(
    "entry",
    [
        heartbeat(0, 2, 1, tokens=[1_000]),
        heartbeat(0, 2, 2, tokens=[999], vector=[(ITEMS, 0, 4)]),
        heartbeat(0, 2, 2, tokens=[1_001], vector=[(ITEMS, 0, 3)]),
        heartbeat(0, 2, 2, tokens=[1_001], vector=[(ITEMS, 0, 4), ("orders.a.b.c", 0, 1)]),
        heartbeat(0, 2, 2, tokens=[], vector=[(ITEMS, 0, 4)]),
        ProgressEntry(0, 2, 0, "SLOT_PROGRESS", "e", {**heartbeat(3, 2, 2, tokens=[1_001]).body}),
        started(2, epoch="another"),
        changes(2, 2, removed=[7]),
        changes(2, 2, open=2),
        changes(2, 2, slowest=2_000, moved=[]),
        minute(2, 1, vector=[(ITEMS, 0, 3)]),
        minute(2, 1, vector=[(ITEMS, 0, 4)], at_us=999),
    ],
    ids=[
        "a revision twice",
        "the watermark moves backwards",
        "a vector that goes back",
        "a topic that cannot be ours",
        "no stream partition",
        "a heartbeat of another slot",
        "two epochs",
        "changes of a token that is not open",
        "another number of open tokens",
        "another slowest token",
        "the minute's record with another vector",
        "the minute's record with another slowest token",
    ],
)
def test_what_a_reader_has_to_refuse(entry):
    reader = Reader(TOPICS)
    for one in (started(), heartbeat(0, 1, 1, tokens=[1_000], vector=[(ITEMS, 0, 4)])):
        reader.read(one)
    reader.reach((ITEMS, 0), 5)
    reader.advance()
    assert reader.broken == []

    reader.read(entry)
    reader.advance()
    assert reader.broken


def logs_of(vector):
    """One slot that says 100 at last, and one change below it, in a topic partition of its own."""
    return {
        (PROGRESS, 0): [started(), heartbeat(0, 1, 1, tokens=[100], vector=vector)],
        (ITEMS, 0): [change(0, 50)],
        (ITEMS, 1): [change(0, 60, number=1)],
    }


@pytest.mark.parametrize("seed", range(5))
def test_in_every_order_of_reading_the_vector_holds(seed):
    logs = logs_of([(ITEMS, 0, 0), (ITEMS, 1, 0)])
    ends = {(PROGRESS, 0): 3, (ITEMS, 0): 1, (ITEMS, 1): 1}
    names = set()
    for name, order in reading_orders(TOPICS, logs, seed=seed):
        reader = replay(TOPICS, logs, ends, order)
        assert (reader.watermark_us, reader.violations, reader.broken) == (100, [], []), name
        names.add(name)
    assert {"as written", "progress first", "data first"} < names


@pytest.mark.parametrize("seed", range(5))
def test_a_vector_without_a_topic_partition_is_noticed(seed):
    logs = logs_of([(ITEMS, 0, 0)])
    ends = {(PROGRESS, 0): 3, (ITEMS, 0): 1, (ITEMS, 1): 1}
    found = [
        violation
        for _, order in reading_orders(TOPICS, logs, seed=seed)
        for violation in replay(TOPICS, logs, ends, order).violations
    ]

    assert any("orders.items/1@0" in one for one in found)
