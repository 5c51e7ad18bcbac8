"""Workers that are broken on purpose: what they do when operators pause a stream, or drain them."""

from __future__ import annotations

from typing import Any

from tests.simulation.mutant import Mutant
from tidegate.producer.core import effects as do
from tidegate.producer.core.lifecycle import SlotPhase
from tidegate.producer.core.operator_commands import OperatorCommands
from tidegate.producer.core.worker import Worker
from tidegate.schemas.progress import WorkerDrain

__all__ = ["BROKEN_CONTROLS"]


def _drop_what_was_read(self: Worker) -> list[do.Effect]:
    if self._commands.paused_by is None or self._cycle.open is not None:
        return []
    owned = tuple(n for n, slot in self.slots.items() if slot.phase is SlotPhase.OWNED)
    effects = [effect for number in owned for effect in self._drop_slot(number)]
    return effects + self._on_assigned(owned)


def _stop_nothing(self: Worker) -> list[do.Effect]:
    return []


def _start_in_a_pause(self: OperatorCommands) -> bool:
    return self._epoch is not None and self._is_at_end


def _start_before_the_end(self: OperatorCommands) -> bool:
    return self._epoch is not None and self.paused_by is None


_handle = OperatorCommands.handle


def _obey_any_drain(self: OperatorCommands, event: Any) -> None:
    _handle(self, event)
    bodies = [record.body for record in event.records]
    named = [one for one in bodies if isinstance(one, WorkerDrain) and one.worker == self._worker]
    self.is_drained = self.is_drained or bool(named)


def _obey_others_drains(self: OperatorCommands, event: Any) -> None:
    has_read = self._is_at_end
    _handle(self, event)
    drains = [one for one in event.records if isinstance(one.body, WorkerDrain)]
    self.is_drained = self.is_drained or (has_read and bool(drains))


_next_transaction = Worker._next_transaction


def _release_at_once(self: Worker, now: Any) -> list[do.Effect]:
    leaving = [slot for slot in self.slots.values() if slot.is_leaving]
    return self._release(leaving) if leaving and self._draining else _next_transaction(self, now)


BROKEN_CONTROLS = (
    Mutant(
        "a pause that drops what was read",
        "pauses",
        ((Worker, "_obey_pause", _drop_what_was_read),),
    ),
    Mutant("a pause that stops no query", "pauses", ((Worker, "_obey_pause", _stop_nothing),)),
    Mutant(
        "a child that starts in a pause",
        "pauses",
        ((OperatorCommands, "may_read", property(_start_in_a_pause)),),
    ),
    Mutant(
        "a restarted worker that forgets the pause",
        "pauses",
        ((OperatorCommands, "may_read", property(_start_before_the_end)),),
    ),
    Mutant(
        "a drained worker that obeys an old drain",
        "pauses",
        ((OperatorCommands, "handle", _obey_any_drain),),
    ),
    Mutant(
        "a worker that obeys the drain of another one",
        "pauses",
        ((OperatorCommands, "handle", _obey_others_drains),),
    ),
    Mutant(
        "a drained worker that leaves before it commits",
        "pauses",
        ((Worker, "_next_transaction", _release_at_once),),
    ),
)
