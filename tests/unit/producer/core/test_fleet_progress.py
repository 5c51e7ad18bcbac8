"""What is reported of the fleet: only what is new, and each second that it is still so."""

from __future__ import annotations

import pytest

from tidegate.lineage.errors import ProtocolError
from tidegate.producer.core.events import FleetRead
from tidegate.producer.core.fleet_progress import FleetProgress
from tidegate.producer.errors import ProgressLost
from tidegate.schemas.progress import ProgressRecord, SlotProgress, TokenSnapshot

NOW_US = 10**12
LATER_US = NOW_US + 1_000_000
"""When the ends are asked for again."""


def beat(slot, revision, watermark_us):
    tokens = (TokenSnapshot("a", 0, (), ("",), watermark_us, number=0),)
    return ProgressRecord("e", "w", SlotProgress(slot, revision, 0, -1, (), tokens))


@pytest.fixture
def progress():
    """One with a heartbeat in each of two slots, reported at `NOW_US`."""
    progress = FleetProgress(epoch="e", topic="p", slots=2)
    assert progress.wants_ends(NOW_US)
    progress.note_ends({0: 2, 1: 2}, NOW_US)
    for slot in range(2):
        progress.add(slot, 0, beat(slot, 1, 30 + slot))
        progress.reach_end(slot, 2)
    assert progress.report() == FleetRead({0: 30, 1: 31}, is_current=True)
    return progress


def test_nothing_is_current_before_each_slot_was_read_to_its_end():
    progress = FleetProgress(epoch="e", topic="p", slots=2)
    progress.note_ends({0: 1, 1: 2}, NOW_US)
    progress.add(0, 0, beat(0, 1, 30))
    progress.add(1, 0, beat(1, 1, 40))

    assert progress.report() == FleetRead({0: 30, 1: 40}, is_current=False)
    assert not progress.is_at_end
    progress.reach_end(1, 2)
    assert progress.is_at_end
    assert progress.report() == FleetRead({}, is_current=True)


def test_nothing_is_current_before_the_ends_are_known():
    progress = FleetProgress(epoch="e", topic="p", slots=1)
    progress.add(0, 0, beat(0, 1, 30))
    progress.reach_end(0, 1)

    assert progress.report() == FleetRead({0: 30}, is_current=False)
    assert not progress.is_at_end


def test_slots_that_are_written_all_the_time_become_current(progress):
    # No slot is ever found at its end, and records lie behind what was noted.
    assert progress.wants_ends(LATER_US)
    progress.note_ends({0: 3, 1: 4}, LATER_US)
    for offset in range(2, 5):
        progress.add(0, offset, beat(0, offset, 30 + offset))
    assert progress.report() == FleetRead({0: 34}, is_current=False)
    for offset in range(2, 5):
        progress.add(1, offset, beat(1, offset, 30 + offset))

    assert progress.is_at_end
    assert progress.report() == FleetRead({1: 34}, is_current=True)


def test_nothing_is_current_while_a_slot_has_no_heartbeat():
    progress = FleetProgress(epoch="e", topic="p", slots=2)
    progress.note_ends({0: 0, 1: 0}, NOW_US)

    assert progress.report() == FleetRead({0: None, 1: None}, is_current=False)
    assert progress.is_at_end
    assert progress.report() is None


def test_the_ends_are_asked_for_again_while_a_heartbeat_is_missing():
    progress = FleetProgress(epoch="e", topic="p", slots=1)
    progress.note_ends({0: 0}, NOW_US)
    progress.report()

    assert not progress.wants_ends(LATER_US - 1)
    assert progress.wants_ends(LATER_US)


def test_only_what_has_changed_is_named(progress):
    progress.add(1, 3, beat(1, 2, 50))

    assert progress.report() == FleetRead({1: 50}, is_current=False)
    progress.reach_end(1, 4)
    assert progress.report() is None


def test_what_has_not_changed_is_confirmed_each_second(progress):
    assert not progress.wants_ends(LATER_US - 1)
    assert progress.wants_ends(LATER_US)
    progress.note_ends({0: 2, 1: 2}, LATER_US)

    assert progress.report() == FleetRead({}, is_current=True)
    assert progress.report() is None


def test_ends_that_are_not_reached_are_not_asked_for_again(progress):
    progress.note_ends({0: 2, 1: 3}, LATER_US)

    assert not progress.wants_ends(LATER_US + 10**7)


def test_a_record_that_removes_another_is_no_news(progress):
    progress.note_ends({0: 9, 1: 2}, LATER_US)
    progress.add(0, 7, None)
    assert progress.report() is None

    progress.reach_end(0, 9)
    assert progress.report() == FleetRead({}, is_current=True)


def test_what_contradicts_the_protocol_is_raised(progress):
    progress.add(0, 3, beat(0, 1, 50))

    with pytest.raises(ProtocolError):
        progress.report()


def test_no_slot_is_looked_at_while_nothing_is_read_or_due(progress, monkeypatch):
    looked = []
    monkeypatch.setattr(progress.view, "lowest_us", looked.append)

    assert progress.report() is None
    assert looked == []


def test_what_is_awaited_is_reported_once_it_is_published():
    progress = FleetProgress(epoch="e", topic="p", slots=1, with_moves=True)
    progress.await_sources([("a", 40), ("a", 50)])
    assert progress.report() == FleetRead({0: None}, is_current=False)
    progress.add(0, 0, beat(0, 1, 30))
    assert progress.report() == FleetRead({0: 30}, is_current=False)
    progress.add(0, 1, beat(0, 2, 40))
    assert progress.report() == FleetRead({0: 40}, is_current=False, published=(("a", 40),))
    progress.await_sources([("a", 35)])

    # Nothing was read, and it is answered at once.
    assert progress.report() == FleetRead({}, is_current=False, published=(("a", 35),))
    assert progress.report() is None


def test_reading_a_slot_backwards_is_an_error(progress):
    with pytest.raises(ProgressLost, match=r"moved backwards \(slot=1, was=2, now=0\)"):
        progress.add(1, 0, beat(1, 2, 99))

    assert progress.reached(1) == 2
