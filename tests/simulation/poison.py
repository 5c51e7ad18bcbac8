"""Changes that cannot be published, and what a query returns of them.

A change is poison from its commit on, for every query that returns it, until `lift`: then it can be
read, as by a newer program, and so can what was parked of it (`corrected`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

from tests.simulation.history import Committed
from tidegate.producer.messages import PublishableRecord
from tidegate.producer.ports import RecordTranslator
from tidegate.producer.records import DataChangeRecord, Mod, UnreadableValues
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.instants import format_rfc3339, parse_rfc3339_ns
from tidegate.schemas.order_key import OrderKey, sequence_pair

__all__ = ["TOO_FINE", "CorrectingTranslator", "Poison"]

_DAMAGED = "damaged "
_NO_COLUMN_HOLDS = "no column holds this"
_OTHER_TYPE = "of another type"
TOO_FINE = "with nanoseconds"
_FINER_BY_NS = 600
_FIRST_INSTANT = "0001-01-01T00:00:00Z"
_NANOSECONDS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z")


class Poison:
    """The poison changes of one run; `chance` is that of a change to be one."""

    def __init__(self, random: Random, *, chance: float) -> None:
        self._random = random
        self._chance = chance
        self._possible = ["damaged", _OTHER_TYPE]
        self.met: set[str] = set()
        """Which kinds queries have returned."""
        self._kinds: dict[bytes, str] = {}
        self.marked: set[bytes] = set()
        """The order keys of all that ever were."""

    def add_kind(self, kind: str) -> None:
        """Let changes be poison in one more way."""
        self._possible.append(kind)

    def mark(self, committed: Iterable[Committed]) -> None:
        """Draw which of the changes that were just committed are poison."""
        for change in committed:
            if self._chance and self._random.random() < self._chance:
                kind = self._random.choice(self._possible)
                self._kinds[change.order_key] = kind
                self.marked.add(change.order_key)

    def lift(self, *, part: float = 1.0) -> None:
        """Let every change be read from now on, or a part of those that cannot."""
        for order_key in sorted(self._kinds):
            if part == 1 or self._random.random() < part:
                del self._kinds[order_key]

    def end(self) -> None:
        """Let every change be read, and none be poison from now on."""
        self.lift()
        self._chance = 0.0

    def spoiled(self, items: list[Any]) -> list[Any]:
        """Return what a query returns, with the poison changes as they cannot be published."""
        if not self._kinds:
            return items
        return [self._spoiled(one) if isinstance(one, DataChangeRecord) else one for one in items]

    def corrected(self, record: DataChangeRecord) -> DataChangeRecord:
        """Return a record that was parked as a program reads it for which nothing is poison."""
        if any(self._kinds_in(record)):
            return record
        return record._replace(mods=tuple(_corrected(mod) for mod in record.mods))

    def _spoiled(self, record: DataChangeRecord) -> DataChangeRecord:
        kinds = self._kinds_in(record)
        if not any(kinds):
            return record
        instants = [one.name for one in record.columns if one.type.code == "TIMESTAMP"]
        mods = []
        for mod, kind in zip(record.mods, kinds, strict=True):
            if kind == TOO_FINE and (finer := _finer(mod, instants)) is not None:
                self.met.add(TOO_FINE)
                mods.append(finer)
            else:
                mods.append(_poison(mod, kind) if kind else mod)
        return record._replace(mods=tuple(mods))

    def _kinds_in(self, record: DataChangeRecord) -> list[str | None]:
        place = OrderKey(
            record.commit_timestamp_ns // 1000,
            record.server_transaction_id,
            sequence_pair(record.record_sequence),
            record.first_mod_number,
        )
        return [self._kinds.get(key) for key in place.encode_mods(len(record.mods))]


class CorrectingTranslator:
    """Translates parked records that are poison no more; implements `ports.RecordTranslator`."""

    def __init__(self, translator: RecordTranslator, poison: Poison) -> None:
        self._translator = translator
        self._poison = poison

    def translate_now(self, record: DataChangeRecord, *, token: str) -> PublishableRecord | None:
        return self._translator.translate_now(self._poison.corrected(record), token=token)

    def translate(self, record: DataChangeRecord, *, token: str) -> PublishableRecord:
        return self._translator.translate(self._poison.corrected(record), token=token)


def _finer(mod: Mod, instants: list[str]) -> Mod | None:
    """Return a change with nanoseconds in a timestamp; None if it has none that is later than all.

    Cut or rounded to microseconds it would be another instant.
    """
    for name in instants:
        text = mod.new_values.get(name)
        if text not in (None, _FIRST_INSTANT):
            finer = format_rfc3339(parse_rfc3339_ns(text) - _FINER_BY_NS)
            return mod._replace(new_values={**mod.new_values, name: finer})
    return None


def _poison(mod: Mod, kind: str) -> Mod:
    if kind != _OTHER_TYPE or not mod.new_values:
        return mod._replace(
            new_values=_damaged(mod.new_values), old_values=_damaged(mod.old_values)
        )
    name = min(mod.new_values)
    of_another_type = [[_NO_COLUMN_HOLDS, mod.new_values[name]]]
    return mod._replace(new_values={**mod.new_values, name: of_another_type})


def _damaged(values: Mapping[str, Any]) -> UnreadableValues:
    text = f"{_DAMAGED}{json.dumps(dict(values))}"
    return UnreadableValues(text, SchemaError("values are not JSON"))


def _corrected(mod: Mod) -> Mod:
    return mod._replace(new_values=_undo(mod.new_values), old_values=_undo(mod.old_values))


def _undo(values: Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(values, UnreadableValues):
        undamaged: dict[str, Any] = json.loads(values.text.removeprefix(_DAMAGED))
        return undamaged
    return {name: _undone(value) for name, value in values.items()}


def _undone(value: Any) -> Any:
    match value:
        case [[note, hidden]] if note == _NO_COLUMN_HOLDS:
            return hidden
    if isinstance(value, str) and _NANOSECONDS.fullmatch(value):
        instant_ns = parse_rfc3339_ns(value) + _FINER_BY_NS
        return value if instant_ns % 1_000 else format_rfc3339(instant_ns)
    return value
