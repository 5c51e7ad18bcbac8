"""Changes that cannot be published, and a registry that refuses versions of a subject.

A change is poison from its commit on, for every query that returns it, until `lift`: then it can be
read, as by a newer program, and so can what was parked of it (`corrected`).
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

from tests.simulation.history import Committed
from tests.simulation.tables import SimTables
from tidegate.producer.messages import PublishableRecord
from tidegate.producer.ports import RecordTranslator
from tidegate.producer.records import DataChangeRecord, Mod, UnreadableValues
from tidegate.schemas.change_schema import row_fields
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.instants import format_rfc3339, parse_rfc3339_ns
from tidegate.schemas.order_key import OrderKey, sequence_pair
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.tables import TableSchema
from tidegate.schemas.topics import TopicNames

_DAMAGED = "damaged "
_NO_COLUMN_HOLDS = "no column holds this"
_OTHER_TYPE = "of another type"
TOO_FINE = "with nanoseconds"
_FINER_BY_NS = 600
_FIRST_INSTANT = "0001-01-01T00:00:00Z"
_NANOSECONDS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z")


class Poison:
    def __init__(self, random: Random, *, chance: float) -> None:
        self._random, self._chance = random, chance
        self._possible = ["damaged", _OTHER_TYPE]
        self.met: set[str] = set()  # which kinds queries have returned
        self._kinds: dict[bytes, str] = {}
        self.marked: set[bytes] = set()  # the order keys of all that ever were

    def add_kind(self, kind: str) -> None:
        self._possible.append(kind)

    def mark(self, committed: Iterable[Committed]) -> None:
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
        self.lift()
        self._chance = 0.0

    def spoiled(self, items: list[Any]) -> list[Any]:
        if not self._kinds:
            return items
        return [
            self._spoiled(item) if isinstance(item, DataChangeRecord) else item for item in items
        ]

    def corrected(self, record: DataChangeRecord) -> DataChangeRecord:
        """Return a record that was parked as a program reads it for which nothing is poison."""
        if any(self._kinds_in(record)):
            return record
        return record._replace(mods=tuple(_corrected(mod) for mod in record.mods))

    def _spoiled(self, record: DataChangeRecord) -> DataChangeRecord:
        kinds = self._kinds_in(record)
        if not any(kinds):
            return record
        instants = [column.name for column in record.columns if column.type.code == "TIMESTAMP"]
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
        self._translator, self._poison = translator, poison

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


class RefusedSchemas:
    def __init__(
        self,
        random: Random,
        registry: InMemorySchemaRegistry,
        tables: SimTables,
        names: TopicNames,
        *,
        chance: float,
    ) -> None:
        self._random, self._tables, self._registry = random, tables, registry
        self._names, self._chance = names, chance
        self._refused: set[str] = set()
        self._known_at_start = {names.data(table) for table in tables.names}
        self.takes_unknown_tables = False
        """A worker cannot even park a change of a table for which it has no schema yet: one that
        came later, or was dropped before the worker started."""
        self.subjects: set[str] = set()  # all of which a version was ever refused
        self.columns: defaultdict[str, set[str]] = defaultdict(set)
        """Data topic -> those that some worker may not have known at a refusal."""
        self.tables: set[str] = set()
        """Data topics of the tables that some worker may not have known at all at a refusal."""

    def refuses(self, subject: str, schema: dict[str, Any]) -> bool:
        topic = subject.removesuffix("-value").removesuffix("-key")
        is_known = self._is_known(topic)
        if self.takes_unknown_tables and not is_known:
            return False
        if subject not in self._refused and self._random.random() >= self._chance:
            return False
        self._refused.add(subject)
        self.subjects.add(subject)
        if not is_known:
            self.tables.add(topic)
        if subject.endswith("-value"):
            current = self._table(topic)
            present = _names(column.name for column in current.columns) if current else set()
            versions = self._registry.versions(subject)
            first = row_fields(versions[0].schema) if versions else {}
            self.columns[topic] |= _names(row_fields(schema)) - (present & _names(first))
        return True

    def _table(self, topic: str) -> TableSchema | None:
        return self._tables.table(self._names.table(topic) or "", stream="s")

    def _is_known(self, topic: str) -> bool:
        """Whether every worker knows a topic's table from its start."""
        is_there = self._table(topic) is not None
        return is_there and topic in self._known_at_start

    def lift(self) -> None:
        self._refused.clear()

    def end(self) -> None:
        self.lift()
        self._chance = 0.0


def _names(columns: Iterable[str]) -> set[str]:
    return {name.lower() for name in columns}
