"""The transition tables are complete, and a pair that is missing is a bug with a name."""

from __future__ import annotations

import itertools

import pytest

from tidegate.producer.core.lifecycle import (
    PARTITION_TRANSITIONS,
    SLOT_TRANSITIONS,
    PartitionChange,
    PartitionState,
    SlotChange,
    SlotPhase,
    transition,
)
from tidegate.schemas.errors import InvariantViolation

TABLES = {
    "slot": (SLOT_TRANSITIONS, SlotPhase, SlotChange, SlotPhase.ASSIGNED),
    "stream partition": (
        PARTITION_TRANSITIONS,
        PartitionState,
        PartitionChange,
        PartitionState.CREATED,
    ),
}


@pytest.mark.parametrize(("table", "states", "changes", "first"), TABLES.values(), ids=TABLES)
class TestTable:
    """What holds for both tables."""

    def test_every_state_is_reached_from_the_first(self, table, states, changes, first):
        reached = {first}
        for _ in states:
            reached |= {to for (state, _), to in table.items() if state in reached}

        assert reached == set(states)

    def test_every_change_happens_in_some_state(self, table, states, changes, first):
        assert {change for _, change in table} == set(changes)

    def test_every_state_leads_to_gone_and_gone_is_final(self, table, states, changes, first):
        ending = {states.GONE}
        for _ in states:
            ending |= {state for (state, _), to in table.items() if to in ending}

        # A stopped stream partition is dropped with its slot, in that state.
        assert set(states) - ending <= {PartitionState.STOPPED}
        assert not any(state is states.GONE for state, _ in table)

    def test_a_pair_that_is_missing_is_a_bug(self, table, states, changes, first):
        missing = set(itertools.product(states, changes)) - table.keys()

        assert missing
        for state, change in missing:
            with pytest.raises(InvariantViolation, match=rf"{state.name}: .*slot=3"):
                transition(table, state, change, slot=3)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([SlotChange.RECOVERY_STARTED, SlotChange.RECOVERED], SlotPhase.OWNED),
        ([SlotChange.REVOKED, SlotChange.RECOVERY_STARTED], SlotPhase.REVOKING),
        ([SlotChange.REVOKED, SlotChange.ABORTED, SlotChange.REVOKED], SlotPhase.RELEASING),
        ([SlotChange.REVOKED, SlotChange.ABORTED, SlotChange.DROPPED], SlotPhase.GONE),
    ],
)
def test_the_life_of_a_slot(changes, expected):
    phase = SlotPhase.ASSIGNED
    for change in changes:
        phase = transition(SLOT_TRANSITIONS, phase, change)

    assert phase is expected
