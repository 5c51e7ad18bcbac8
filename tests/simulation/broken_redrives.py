"""Redrives that are broken on purpose: what is put back, in which order, and who knows of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from tests.simulation.mutant import Mutant
from tidegate.producer.core.redrive import RedrivingWorker
from tidegate.producer.core.slot import Slot
from tidegate.producer.driver import redriver
from tidegate.producer.memory.publisher import MemoryPublisher
from tidegate.producer.messages import DeadLetter, PublishableRecord
from tidegate.producer.translation.parked_survey import ParkedSurvey
from tidegate.producer.translation.parking import POISON
from tidegate.schemas.topics import ROOT_TOKEN

__all__ = ["BROKEN_REDRIVES"]

_batches = redriver.batches
_Batches = Iterator[tuple[PublishableRecord, ...]]


def _last_first(*parts: Any) -> _Batches:
    """Put the changes of a key back the last first."""
    records = [record for batch in _batches(*parts) for record in batch]
    changes = [record for record in records if record.messages]
    yield tuple(reversed(changes))
    yield tuple(record for record in records if not record.messages)


def _without_what_is_poison(
    letters: Iterable[DeadLetter | None], survey: Any, selection: Any, translate: Any
) -> _Batches:
    """Put keys back without those of their changes that cannot be published."""

    def readable(letter: DeadLetter | None) -> bool:
        if letter is None or not survey.is_parked(letter):
            return True
        key = selection.chosen.get((letter.change.topic, letter.change.key))
        try:
            translate(letter.change)
        except POISON:
            if key is not None:
                key.changes -= 1
            return False
        return True

    kept = [letter for letter in letters if readable(letter)]
    return _batches(kept, survey, selection, translate)


_select = ParkedSurvey.select


def _select_what_is_poison_too(self: ParkedSurvey, topic: str | None = None) -> Any:
    for key in self._keys.values():
        key.reason = ""
    return _select(self, topic)


def _always_parked(self: ParkedSurvey, letter: DeadLetter) -> bool:
    return bool(letter.change.content)


_publish_records = MemoryPublisher.publish_records


def _put_back_at_once(self: Any, effect: Any) -> Any:
    """Write what is put back outside of the transaction: a second attempt does so again."""
    if effect.token != ROOT_TOKEN:
        return _publish_records(self, effect)
    for record in effect.records:
        for message in record.messages:
            place = self._place(message.topic, message.key)
            self.broker.logs[place].append(message.key, message, None)
    kept = tuple(record._replace(messages=()) for record in effect.records)
    return _publish_records(self, replace(effect, records=kept))


def _publish_without_markers(self: Any, effect: Any) -> Any:
    if effect.token != ROOT_TOKEN:
        return _publish_records(self, effect)
    kept = tuple(record._replace(parked=()) for record in effect.records)
    return _publish_records(self, replace(effect, records=kept))


def _release_in_the_roots_slot_only(self: Slot, keys: frozenset[int]) -> bool:
    return False


def _with_any_slot(self: RedrivingWorker) -> bool:
    """Begin while other workers have slots."""
    return self.stream is not None and bool(self.slots)


BROKEN_REDRIVES = (
    Mutant(
        "the changes of a key put back the last first",
        "key_order",
        ((redriver, "batches", _last_first),),
    ),
    Mutant(
        "a key put back without what is poison",
        "parking",
        (
            (redriver, "batches", _without_what_is_poison),
            (ParkedSurvey, "select", _select_what_is_poison_too),
        ),
    ),
    Mutant(
        "what was put back put back again",
        "nothing_twice",
        ((ParkedSurvey, "is_parked", _always_parked),),
    ),
    Mutant(
        "changes put back outside of the transaction",
        "nothing_twice",
        ((MemoryPublisher, "publish_records", _put_back_at_once),),
    ),
    Mutant(
        "a redrive that does not note what it has put back",
        "nothing_twice",
        ((MemoryPublisher, "publish_records", _publish_without_markers),),
    ),
    Mutant(
        "a key that was put back not released",
        "parking",
        ((Slot, "put_back", _release_in_the_roots_slot_only),),
    ),
    Mutant(
        "a redrive beside workers that have slots",
        "parking",
        ((RedrivingWorker, "is_ready", property(_with_any_slot)),),
    ),
)
