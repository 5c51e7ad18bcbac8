"""Cores that are broken on purpose where tables come later than the stream."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.simulation.mutant import Mutant
from tidegate.producer.core import effects as do
from tidegate.producer.core.added_tables import AddedTables
from tidegate.producer.memory.membership import MemoryMembership
from tidegate.schemas.progress import DataTopic, ProgressRecord, TableAdded

__all__ = ["BROKEN_TABLES"]


def _wait_for_none(self: AddedTables, records: Iterable[Any]) -> set[str]:
    return set()


_open = AddedTables.open


def _watch_none(self: AddedTables, topic: DataTopic) -> list[do.Effect]:
    return []


def _open_without_watching(self: AddedTables, record: ProgressRecord) -> list[do.Effect]:
    return [effect for effect in _open(self, record) if not isinstance(effect, do.WatchTopic)]


def _confirm_as_recorded(self: AddedTables, tables: Iterable[TableAdded]) -> None:
    self._recorded |= {one.topic.topic: one.topic for one in tables}
    self._update()


def _due_at_once(self: AddedTables, topics: Iterable[str]) -> list[TableAdded]:
    return [TableAdded(self._found[topic]) for topic in sorted(self.unrecorded & set(topics))]


def _read_no_tables(self: MemoryMembership) -> list[Any]:
    return []


BROKEN_TABLES = (
    Mutant(
        "a later table published before it is recorded",
        "tables",
        ((AddedTables, "waited_for", _wait_for_none),),
    ),
    Mutant(
        "a later table's topic not watched",
        "ground",
        ((AddedTables, "_watch_topic", _watch_none),),
    ),
    Mutant(
        "a table that was dropped before the start not watched",
        "ground",
        ((AddedTables, "open", _open_without_watching),),
    ),
    Mutant(
        "a table's record of another worker not read",
        "ground",
        (
            (AddedTables, "confirm", _confirm_as_recorded),
            (AddedTables, "due", _due_at_once),
            (MemoryMembership, "read_root_slot", _read_no_tables),
        ),
    ),
)
