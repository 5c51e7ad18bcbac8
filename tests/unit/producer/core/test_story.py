"""A violation carries the last events and effects of its subject, and no records."""

from __future__ import annotations

import gc
import pickle
import weakref

import pytest

from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core import story as module
from tidegate.producer.core.story import Story
from tidegate.producer.messages import PublishableRecord
from tidegate.producer.records import HeartbeatRecord
from tidegate.schemas.errors import InvariantViolation
from tidegate.schemas.progress import ChildPartition, PartitionAnnounced, ProgressRecord
from tidegate.schemas.topics import slot_of

SLOTS = 4
HOME = slot_of("a", SLOTS)
OTHER = (HOME + 1) % SLOTS
ELSEWHERE = next(token for token in "bcdefgh" if slot_of(token, SLOTS) not in (HOME, OTHER))


@pytest.fixture
def story():
    """A story with lines about two tokens, two slots and a transaction."""
    made = Story(SLOTS)
    announced = PartitionAnnounced(ChildPartition("a", (), 1), "")
    for second, entry in enumerate(
        (
            on.SlotsAssigned((HOME,)),
            on.SlotsAssigned((OTHER,)),
            on.ProgressRead(HOME, 1, 7, ProgressRecord("e", "w", announced)),
            do.StartQuery("a", 1, 5),
            do.StartQuery(ELSEWHERE, 2, 5),
            on.Ticked(),
            on.RecordsRead("a", 1, [HeartbeatRecord(1)], 64),
            do.BeginTransaction(),
            do.PublishRecords(HOME, "a", ()),
            on.Delivered({HOME: ()}, {}),
            on.TransactionAborted("slot lost"),
        )
    ):
        made.add(entry, now_us=second * 1_000_000)
    return made


def seconds(lines):
    """Return when each line happened."""
    return [int(float(line.split()[0])) for line in lines]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"token": "a"}, [0, 2, 3, 6, 8, 9]),
        ({"token": ELSEWHERE}, [4]),
        ({"slot": OTHER}, [1]),
        ({"slot": HOME, "place": ("t", 0)}, [0, 2, 8, 9]),
        ({"transaction": "publishing"}, [7, 8, 9, 10]),
        ({}, [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]),
    ],
    ids=["token", "another token", "slot", "slot and more", "transaction", "everything"],
)
def test_the_lines_are_those_of_the_subject(story, fields, expected):
    assert seconds(story.about(fields)) == expected


def test_lines_show_time_and_details(story):
    lines = story.about({"token": "a"})

    assert lines[0] == f"0.000000 SlotsAssigned(slots=({HOME},))"
    assert lines[1] == f"2.000000 ProgressRead(token a, slot {HOME}, PartitionAnnounced, offset 7)"
    assert lines[3] == "6.000000 RecordsRead(token a, query 1, 1 items, 64 bytes)"


def test_it_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "_LINES_MAX", 50)
    made = Story(SLOTS)
    for number in range(100):
        made.add(on.SlotsLost((0,)), now_us=number * 1_000_000)

    assert len(made._lines) == 50
    assert seconds(made.about({})) == list(range(100 - module._LINES_SHOWN_MAX, 100))


def test_it_keeps_no_records_alive():
    class Held(list):
        """A list that can be watched."""

    items = Held([PublishableRecord(1, "t", "0", ())])
    watched = weakref.ref(items)
    made = Story(SLOTS)
    made.add(on.RecordsRead("a", 1, items, 64), now_us=0)
    del items
    gc.collect()

    assert watched() is None


class TestWorker:
    """The worker attaches the story to what it raises."""

    def test_a_violation_ends_with_the_last_events_of_its_slot(self, bench):
        bench.open_stream("a", "b")
        with pytest.raises(InvariantViolation) as raised:
            bench.worker.handle(on.SlotsAssigned((HOME,)), now=bench.at(bench.now_us))
        violation = pickle.loads(pickle.dumps(raised.value))

        assert violation.fields == {"slot": HOME}
        assert "SlotsAssigned" in violation.story[-1]
        assert any("SlotRecoveryStarted" in line for line in violation.story)
        assert str(violation).splitlines()[0] == f"slot assigned twice (slot={HOME})"
        assert str(violation).endswith(violation.story[-1])

    def test_a_failed_check_carries_it_too(self, bench):
        bench.open_stream("a", "b")
        bench.worker.slots[HOME].tokens["a"].pending_bytes = -1
        with pytest.raises(InvariantViolation, match="pending bytes are negative") as raised:
            bench.worker.check_invariants()

        assert any("StartQuery" in line for line in raised.value.story)
