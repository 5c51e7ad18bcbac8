"""Only what an expired position stops can be accepted as lost; anything else is named."""

from __future__ import annotations

import pytest

from tidegate.lineage.fleet_view import FleetView
from tidegate.lineage.frontier import ProgressRow
from tidegate.producer.commands import accept_gap as command
from tidegate.producer.commands.accept_gap import ExpiredPartition
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.progress import PartitionGap, ProgressRecord, SlotProgress, TokenSnapshot
from tidegate.schemas.topics import slot_of

EXPIRED = "too old (lost_from='x', lost_until='y')"


def view(**stopped):
    """A fleet whose tokens are stopped for these reasons, each with a later watermark."""
    names = list(stopped)
    found = FleetView(epoch="e", progress_topic="p", slots=2)
    for slot in range(2):
        tokens = tuple(
            TokenSnapshot(name, 0, (), (), 100 + names.index(name), number=n, stopped=stopped[name])
            for n, name in enumerate(name for name in names if slot_of(name, 2) == slot)
        )
        body = SlotProgress(slot, 1, 7, -1, (), tokens)
        row = ProgressRow(slot, 0, ProgressRecord("e", "w", body))
        found.fold([row], reached={0: 1, 1: 1})
    return found


def chosen(found, token=""):
    return [one.token for one in command._choose(found, token)]


def test_all_that_has_expired_is_chosen_or_the_one_that_is_named():
    found = view(b=EXPIRED, a=EXPIRED, other="no such token", open=None)
    assert chosen(found) == ["b", "a"]
    assert chosen(found, "a") == ["a"]


@pytest.mark.parametrize(
    ("token", "text"),
    [
        ("nobody", "no such stream partition"),
        ("open", "is not stopped (token='open')"),
        ("other", "not stopped by an expired position"),
    ],
)
def test_what_has_not_expired_is_refused_and_says_what_it_is(token, text):
    with pytest.raises(ConfigError) as caught:
        chosen(view(a=EXPIRED, other="its record [is] damaged", open=None), token)
    assert text in str(caught.value)
    assert ("its record [is] damaged" in str(caught.value)) is (token == "other")


def test_what_is_lost_is_described_with_its_bounds_and_since_when():
    gap = PartitionGap("a", 1_000_000, 3_500_000, "ops", 9)
    assert command._described(view(a=EXPIRED), gap) == ExpiredPartition(
        token="a",
        slot=slot_of("a", 2),
        lost_from="1970-01-01T00:00:01Z",
        lost_until="1970-01-01T00:00:03.500000Z",
        lost_s=2.5,
        stopped_since="1970-01-01T00:07:00Z",
        reason=EXPIRED,
    )
