"""Workers that are broken on purpose: which changes are parked, and who knows of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

from tests.simulation.mutant import Mutant
from tidegate.producer.core import parked_keys
from tidegate.producer.core.heartbeat import HeartbeatWriter
from tidegate.producer.core.parked_keys import PARKED_KEYS_MAX, ParkedKeys
from tidegate.producer.core.progress_writer import ProgressWriter
from tidegate.producer.core.stream_partition import StreamPartition
from tidegate.producer.errors import TooManyParkedKeys
from tidegate.producer.memory.publisher import MemoryPublisher
from tidegate.producer.translation.parking import ParkingTranslator
from tidegate.producer.translation.refreshing import RefreshingTranslator
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


def _divert_without_limit(self: Any, record: Any, *, token: str) -> Any:
    with patch.object(parked_keys, "PARKED_KEYS_MAX", PARKED_KEYS_MAX):
        return _divert(self, record, token=token)


def _stop_at_a_held_key(self: Any, record: Any, *, token: str) -> Any:
    """Count a key that is parked already as one more."""
    limit = parked_keys.PARKED_KEYS_MAX
    if record.parked and len(self.keys) >= limit:
        at_us = record.commit_timestamp_us
        raise TooManyParkedKeys(token, keys=len(self.keys), commit_timestamp_us=at_us)
    return _divert(self, record, token=token)


_translate = RefreshingTranslator.translate


def _leave_refused_columns_out(self: Any, record: Any, *, token: str) -> Any:
    """Publish a change without the columns that the registry does not take."""
    try:
        return _translate(self, record, token=token)
    except SchemaError as error:
        if "subject" not in error.fields:
            raise
    table = self._translator.encoding(record.table_name).table
    names = {column.name for column in table.columns}
    kept = tuple(column for column in record.columns if column.name in names)
    mods = tuple(_only(mod, names) for mod in record.mods)
    return self._translator.translate(record._replace(columns=kept, mods=mods), token=token)


def _only(mod: Any, names: set[str]) -> Any:
    new = {name: value for name, value in mod.new_values.items() if name in names}
    return mod._replace(new_values=new)


_park_or_translate = ParkingTranslator.translate


def _park_after_a_refusal(self: Any, record: Any, *, token: str) -> Any:
    """Park every change of a table of which the registry has refused a version."""
    refused = self.__dict__.setdefault("refused", {})
    if record.table_name not in refused or not record.mods:
        translated = _park_or_translate(self, record, token=token)
        if any("rejects a schema" in change.error for change in translated.parked):
            refused[record.table_name] = SchemaError(translated.parked[0].error)
        return translated
    error = refused[record.table_name]
    parts = (record.part(position) for position in range(len(record.mods)))
    return _by_change(self, record, token)._replace(
        messages=(), parked=tuple(self._park(part, error, token) for part in parts)
    )


def _park_all_of_its_table_now(self: Any, record: Any, *, token: str) -> Any:
    if record.table_name in self.__dict__.get("refused", {}):
        return None
    return _park_or_translate_now(self, record, token=token)


_park_or_translate_now = ParkingTranslator.translate_now


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
        "key_order",
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
    Mutant(
        "keys parked beyond the limit",
        "parked_limit",
        ((ParkedKeys, "divert", _divert_without_limit),),
    ),
    Mutant(
        "a stream partition that is full stopped by a key that it has parked",
        "parked_limit",
        ((ParkedKeys, "divert", _stop_at_a_held_key),),
    ),
    Mutant(
        "a column that the registry refuses left out of its change",
        "values",
        ((RefreshingTranslator, "translate", _leave_refused_columns_out),),
    ),
    Mutant(
        "a whole table parked once the registry has refused a version",
        "parking",
        (
            (ParkingTranslator, "translate", _park_after_a_refusal),
            (ParkingTranslator, "translate_now", _park_all_of_its_table_now),
        ),
    ),
)
