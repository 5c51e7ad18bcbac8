"""Changes that cannot be published, and what a query returns of them.

A change is poison from its commit on, for every query that returns it, until `lift`: then it can be
read, as by a newer program.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

from tests.simulation.history import Committed
from tidegate.producer.records import DataChangeRecord, Mod, UnreadableValues
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.order_key import OrderKey, sequence_pair

__all__ = ["Poison"]

_DAMAGED = '{"a": 1'


class Poison:
    """The poison changes of one run; `chance` is that of a change to be one."""

    def __init__(self, random: Random, *, chance: float) -> None:
        self._random = random
        self._chance = chance
        self._kinds: dict[bytes, str] = {}
        self.marked: set[bytes] = set()
        """The order keys of all that ever were."""

    def mark(self, committed: Iterable[Committed]) -> None:
        """Draw which of the changes that were just committed are poison."""
        for change in committed:
            if self._chance and self._random.random() < self._chance:
                kind = self._random.choice(("damaged", "of another type"))
                self._kinds[change.order_key] = kind
                self.marked.add(change.order_key)

    def lift(self) -> None:
        """Let every change be read from now on."""
        self._kinds.clear()

    def spoiled(self, items: list[Any]) -> list[Any]:
        """Return what a query returns, with the poison changes as they cannot be published."""
        if not self._kinds:
            return items
        return [self._spoiled(one) if isinstance(one, DataChangeRecord) else one for one in items]

    def _spoiled(self, record: DataChangeRecord) -> DataChangeRecord:
        place = OrderKey(
            record.commit_timestamp_ns // 1000,
            record.server_transaction_id,
            sequence_pair(record.record_sequence),
            0,
        )
        kinds = [self._kinds.get(key) for key in place.encode_mods(len(record.mods))]
        if not any(kinds):
            return record
        mods = zip(record.mods, kinds, strict=True)
        return record._replace(
            mods=tuple(_poison(mod, kind) if kind else mod for mod, kind in mods)
        )


def _poison(mod: Mod, kind: str) -> Mod:
    if kind == "damaged" or not mod.new_values:
        values = UnreadableValues(_DAMAGED, SchemaError("values are not JSON"))
        return Mod(mod.keys, values, values)
    name = min(mod.new_values)
    return mod._replace(new_values={**mod.new_values, name: [["no column holds this"]]})
