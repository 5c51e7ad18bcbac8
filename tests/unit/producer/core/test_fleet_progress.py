"""What is reported of the fleet: only what is new, and each second that it is still so."""

from __future__ import annotations

import pytest

from tidegate.lineage.errors import ProtocolError
from tidegate.producer.core.events import FleetRead
from tidegate.producer.core.fleet_progress import FleetProgress
from tidegate.schemas.progress import ProgressRecord, SlotProgress, TokenSnapshot

NOW_US = 10**12


def beat(slot, revision, watermark_us):
    tokens = (TokenSnapshot("a", 0, (), ("",), watermark_us, number=0),)
    return ProgressRecord("e", "w", SlotProgress(slot, revision, 0, -1, (), tokens))


@pytest.fixture
def progress():
    """One with a heartbeat in each of two slots, reported at `NOW_US`."""
    progress = FleetProgress(epoch="e", topic="p", slots=2)
    for slot in range(2):
        progress.add(slot, 0, beat(slot, 1, 30 + slot))
        progress.reach_end(slot, 2)
    assert progress.report(NOW_US) == FleetRead({0: 30, 1: 31}, is_current=True)
    return progress


def test_nothing_is_current_before_each_slot_was_read_to_its_end():
    progress = FleetProgress(epoch="e", topic="p", slots=2)
    progress.add(0, 0, beat(0, 1, 30))
    progress.reach_end(0, 1)
    progress.add(1, 0, beat(1, 1, 40))

    assert progress.report(NOW_US) == FleetRead({0: 30, 1: 40}, is_current=False)
    progress.reach_end(1, 1)
    assert progress.report(NOW_US) == FleetRead({}, is_current=True)


def test_nothing_is_current_while_a_slot_has_no_heartbeat():
    progress = FleetProgress(epoch="e", topic="p", slots=2)
    for slot in range(2):
        progress.reach_end(slot, 0)

    assert progress.report(NOW_US) == FleetRead({0: None, 1: None}, is_current=False)
    assert progress.report(NOW_US + 10**7) is None


def test_only_what_has_changed_is_named(progress):
    progress.add(1, 3, beat(1, 2, 50))

    assert progress.report(NOW_US) == FleetRead({1: 50}, is_current=False)
    progress.reach_end(1, 4)
    assert progress.report(NOW_US) is None


def test_what_has_not_changed_is_confirmed_each_second(progress):
    assert progress.report(NOW_US + 999_999) is None
    assert progress.report(NOW_US + 1_000_000) == FleetRead({}, is_current=True)
    assert progress.report(NOW_US + 1_000_001) is None


def test_a_record_that_removes_another_is_no_news(progress):
    progress.add(0, 7, None)
    assert progress.report(NOW_US + 1_000_000) is None

    progress.reach_end(0, 8)
    assert progress.report(NOW_US + 1_000_000) == FleetRead({}, is_current=True)


def test_what_contradicts_the_protocol_is_raised(progress):
    progress.add(0, 3, beat(0, 1, 50))

    with pytest.raises(ProtocolError):
        progress.report(NOW_US)


def test_no_slot_is_looked_at_while_nothing_is_read_or_due(progress, monkeypatch):
    looked = []
    monkeypatch.setattr(progress.view, "lowest_us", looked.append)

    assert progress.report(NOW_US + 999_999) is None
    assert looked == []
