"""What a worker's core shows of its state: to tests, to metrics, and to a copy of itself."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from tidegate.producer.core.group_watch import GroupWatch
from tidegate.producer.core.lifecycle import PartitionState
from tidegate.producer.core.operator_commands import OperatorCommands
from tidegate.producer.core.partition_index import PartitionIndex
from tidegate.producer.core.slot import Slot
from tidegate.producer.core.story import Story
from tidegate.producer.core.stream_identity import StreamIdentity
from tidegate.producer.core.transaction import OpenTransaction
from tidegate.producer.core.transaction_cycle import TransactionCycle
from tidegate.schemas.errors import InvariantViolation, TidegateError, invariant
from tidegate.schemas.topics import slot_of

_KNOWN = (
    "slots",
    "stream",
    "epoch",
    "counters",
    "_index",
    "_cycle",
    "_undeliverable",
    "_incarnations",
    "_queries",
    "_start_search",
    "_draining",
    "_opening",
    "_fleet",
    "_group_watch",
    "_tables",
    "_commands",
    "_leaves_group",
)


class InspectedWorker:
    """The part of a worker that changes nothing, but for `restore`."""

    slots: dict[int, Slot]
    _draining: bool
    _identity: StreamIdentity
    _index: PartitionIndex
    _cycle: TransactionCycle
    _group_watch: GroupWatch
    _commands: OperatorCommands
    _story: Story

    def snapshot(self) -> dict[str, Any]:
        """Return a copy of the state, for diagnosis or for `restore`.

        Only the slots' snapshots in the log survive a process.
        """
        return deepcopy({name: getattr(self, name) for name in _KNOWN})

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Take over the state of a worker with the same settings."""
        for name, value in deepcopy(dict(snapshot)).items():
            setattr(self, name, value)

    @property
    def transaction(self) -> OpenTransaction | None:
        """The open transaction; None without one."""
        return self._cycle.open

    @property
    def watermark_us(self) -> int | None:
        """The least published watermark of the owned tokens; None without one."""
        return self._index.watermark_us

    @property
    def states(self) -> Mapping[PartitionState, int]:
        """How many stream partitions of the owned slots are in each state."""
        return self._index.states

    @property
    def is_draining(self) -> bool:
        """Whether it is about to end, by itself or because an operator takes it away."""
        return self._draining

    @property
    def is_paused(self) -> bool:
        """Whether an operator has paused the stream, and this worker obeys."""
        return self._commands.paused_by is not None

    @property
    def stopped(self) -> Mapping[str, TidegateError]:
        """The stopped stream partitions of the owned slots, and what stopped each."""
        return self._index.stopped

    def check_invariants(self) -> None:
        """Raise InvariantViolation, with the story of its subject, if the state is inconsistent."""
        try:
            self._check_invariants()
        except InvariantViolation as violation:
            violation.story = self._story.about(violation.fields)
            raise

    def _check_invariants(self) -> None:
        for number, slot in self.slots.items():
            invariant(number == slot.number, "slot registered under another number", slot=number)
            slot.check_invariants()
            for token in slot.tokens:
                home = slot_of(token, self._identity.slots)
                invariant(home == number, "token in the wrong slot", token=token, slot=number)
        self._index.check_invariants(self.slots.values())
        self._cycle.check_invariants()
        self._group_watch.check_invariants()
