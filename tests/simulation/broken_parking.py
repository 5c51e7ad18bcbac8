"""Workers that are broken on purpose: which changes are parked, and who knows of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.simulation.mutant import Mutant
from tidegate.producer.core.heartbeat import HeartbeatWriter
from tidegate.producer.core.parked_keys import ParkedKeys
from tidegate.producer.core.progress_writer import ProgressWriter
from tidegate.producer.core.stream_partition import StreamPartition
from tidegate.producer.memory.publisher import MemoryPublisher
from tidegate.producer.translation.parking import ParkingTranslator
from tidegate.schemas.errors import SchemaError

__all__ = ["BROKEN_PARKING"]

_divert = ParkedKeys.divert


def _divert_without_followers(self: Any, record: Any, *, token: str) -> Any:
    """Park what is poison, and let the later changes of its key flow."""
    diverted, _ = _divert(ParkedKeys(), record, token=token)
    return diverted, ParkedKeys(self.keys, self.changes + len(diverted.parked))


def _divert_the_whole_record(self: Any, record: Any, *, token: str) -> Any:
    """Park a record's other changes with the one that is poison."""
    if not record.parked:
        return _divert(self, record, token=token)
    keys = {(message.topic, message.key) for message in record.messages}
    poison = [record.parked[0]._replace(topic=topic, key=key) for topic, key in sorted(keys)]
    _, everything = _divert(self, record._replace(parked=tuple(poison), messages=()), token=token)
    diverted, _ = _divert(everything, record, token=token)
    return diverted, ParkedKeys(everything.keys, self.changes + len(diverted.parked))


_announcement = ProgressWriter.announcement


def _announcement_without_keys(self: Any, child: Any, **options: Any) -> Any:
    return _announcement(self, child, **{**options, "parked_keys": ()})


_announce = StreamPartition.announce


def _announce_keys_of_one_parent(self: Any, parent: str, parked_keys: tuple[int, ...] = ()) -> bool:
    return _announce(self, parent, parked_keys if not self.heard else ())


_restore = StreamPartition.restore.__func__  # type: ignore[attr-defined]  # a class method


def _restore_without_keys(cls: Any, snapshot: Any) -> StreamPartition:
    return _restore(cls, replace(snapshot, parked_keys=()))  # type: ignore[no-any-return]  # its function is not typed


def _stale_without_parking(self: Any, _tokens: Any, _publications: Any) -> set[str]:
    """Describe no token again because it has parked a key."""
    return set(self.undescribed)


_publish_records = MemoryPublisher.publish_records


def _publish_parked_at_once(self: Any, effect: Any) -> Any:
    """Write parked changes outside of the transaction."""
    for record in effect.records:
        for change in record.parked:
            place = self._place(self._dead_letter, change.key)
            self.broker.logs[place].append(change.key, change, None)
    kept = tuple(record._replace(parked=()) for record in effect.records)
    return _publish_records(self, replace(effect, records=kept))


_by_change = ParkingTranslator._by_change


def _drop_the_other_changes(self: Any, record: Any, token: str) -> Any:
    return _by_change(self, record, token)._replace(messages=())


def _park_the_other_changes(self: Any, record: Any, token: str) -> Any:
    """Park a record's good changes under the error of the one that is poison."""
    parked = []
    for position in range(len(record.mods)):
        error = SchemaError("another change of its record cannot be published")
        parked.append(self._park(record.part(position), error, token))
    return _by_change(self, record, token)._replace(messages=(), parked=tuple(parked))


_park = ParkingTranslator._park


def _park_as_the_first_change(self: Any, record: Any, error: Any, token: str) -> Any:
    return _park(self, record._replace(first_mod_number=0), error, token)


BROKEN_PARKING = (
    Mutant(
        "a later change of a parked key published",
        "parking",
        ((ParkedKeys, "divert", _divert_without_followers),),
    ),
    Mutant(
        "a whole record parked for one change of it",
        "parking",
        ((ParkedKeys, "divert", _divert_the_whole_record),),
    ),
    Mutant(
        "a child without the parked keys of its parents",
        "parking",
        ((ProgressWriter, "announcement", _announcement_without_keys),),
    ),
    Mutant(
        "a merged child with the parked keys of one parent",
        "key_order",
        ((StreamPartition, "announce", _announce_keys_of_one_parent),),
    ),
    Mutant(
        "a restart that forgets the parked keys",
        "key_order",
        ((StreamPartition, "restore", classmethod(_restore_without_keys)),),
    ),
    Mutant(
        "a token that has parked a key not described again",
        "key_order",
        ((HeartbeatWriter, "_stale", _stale_without_parking),),
    ),
    Mutant(
        "parked changes outside of the transaction",
        "parking",
        ((MemoryPublisher, "publish_records", _publish_parked_at_once),),
    ),
    Mutant(
        "the good changes of a record dropped with the one that is poison",
        "nothing_lost",
        ((ParkingTranslator, "_by_change", _drop_the_other_changes),),
    ),
    Mutant(
        "a record's good changes parked as if they were poison",
        "parking",
        ((ParkingTranslator, "_by_change", _park_the_other_changes),),
    ),
    Mutant(
        "a change parked under the place of its record's first",
        "parking",
        ((ParkingTranslator, "_park", _park_as_the_first_change),),
    ),
)
