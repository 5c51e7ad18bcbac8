"""Which rows a workload believes to exist, so that it can choose keys that do or do not.

It guesses whether a transaction will commit. A wrong guess costs variety, never correctness: both
sides are asked the same whatever it believes.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from differential.schema import Schema, Table
from differential.steps import Delete, Keys, Mutation

_Key = tuple[Any, ...]


class RowModel:
    """Keys by table, of the rows that are believed to be there."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self.keys: dict[str, dict[_Key, None]] = {}

    def held(self, table: str) -> list[_Key]:
        return list(self.keys.get(table, ()))

    def snapshot(self) -> dict[str, dict[_Key, None]]:
        return deepcopy(self.keys)

    def restore(self, kept: dict[str, dict[_Key, None]]) -> None:
        self.keys = kept

    def apply(self, mutation: Mutation) -> bool:
        """Note what a mutation does; whether it is believed to succeed."""
        if isinstance(mutation, Delete):
            return self._delete(mutation.table, mutation.keys)
        table = self._schema.tables.get(mutation.table)
        if table is None or not set(table.key_names) <= set(mutation.columns):
            return False
        places = [mutation.columns.index(name) for name in table.key_names]
        return all(
            self.write(table, tuple(row[place] for place in places), mutation.kind)
            for row in mutation.rows
        )

    def write(self, table: Table, key: _Key, kind: str) -> bool:
        """Note one written row; whether it is believed to succeed."""
        held = self.keys.setdefault(table.name, {})
        if kind == "insert" and key in held:
            return False
        if kind == "update" and key not in held:
            return False
        if table.parent is not None:
            parent = self._schema.tables.get(table.parent)
            if parent is not None and key[: len(parent.key)] not in self.keys.get(parent.name, {}):
                return False
        held[key] = None
        return True

    def _delete(self, table: str, keys: Keys) -> bool:
        held = self.held(table)
        # Of ranges it only knows that something may have gone: those rows count as gone.
        gone = held if keys.is_all else [key for key in held if key in keys.keys]
        for interval in keys.intervals:
            gone += [key for key in held if key[:1] in (interval.start[:1], interval.end[:1])]
        return all(self.remove(table, key) for key in gone)

    def remove(self, table: str, key: _Key) -> bool:
        """Note one deleted row, with its children."""
        for child in self._schema.children(table):
            below = [one for one in self.held(child.name) if one[: len(key)] == key]
            if below and not child.cascade:
                return False
            for one in below:
                self.remove(child.name, one)
        self.keys.get(table, {}).pop(key, None)
        return True
