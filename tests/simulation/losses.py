"""Records that are lost between Kafka and the gate, or come there without having been published.

A seed has one such fault at most, drawn from a generator of its own.  The same offsets are lost in
every attempt at a batch, so nothing that the gate counts of its own rows shows it: what the records
of a transaction state does.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import fastavro

from tests.simulation.gate_rows import DataRow
from tidegate.schemas.order_key import OrderKey
from tidegate.schemas.wire_format import frame, unframe

if TYPE_CHECKING:
    from tests.simulation.world import World

__all__ = ["LOSSES", "Losses"]

LOSSES = ("lost", "added")
_CHANCE = 0.25
_ROWS_MAX = 150
_FAR = 1 << 40


class Losses:
    """What happens to one record of the seed, in every attempt to read it."""

    def __init__(self, world: World, seed: int) -> None:
        """Draw whether there is a fault; it waits for a record whose loss can be shown."""
        random = Random(f"losses {seed}")
        # A record that is parked, and comes back later, is absent on purpose.
        is_possible = not world.weather.parks
        self._world = world
        self._kind = random.choice(LOSSES) if is_possible and random.random() < _CHANCE else ""
        self._due = random.randint(1, _ROWS_MAX)
        self._seen: set[tuple[str, int, int]] = set()
        self._place: tuple[str, int, int] | None = None
        self.transaction = ""
        """The transaction that is no longer whole; empty before the fault."""

    def read(self, rows: Iterable[DataRow]) -> Iterator[DataRow]:
        """Yield what the gate gets of the rows that Kafka has."""
        if not self._kind:
            yield from rows
            return
        for row in rows:
            place = (row.topic, row.topic_partition, row.offset)
            if self._place is None and place not in self._seen:
                self._seen.add(place)
                self._happen(row, place)
            if place != self._place:
                yield row
            elif self._kind == "added":
                yield row
                yield self._another(row)

    def _happen(self, row: DataRow, place: tuple[str, int, int]) -> None:
        self._due -= 1
        if self._due > 0 or not self._is_shown_by_others(row):
            return
        self._place = place
        self.transaction = OrderKey.decode(row.order_key).server_transaction_id
        self._world.tell("consumer", "fault", f"a record {self._kind} after Kafka")

    def _is_shown_by_others(self, row: DataRow) -> bool:
        """Whether other records state that this one is there, or that another is not."""
        key = OrderKey.decode(row.order_key)
        committed = [
            other
            for one in self._world.spanner.committed
            if one.commit_timestamp_us == key.commit_timestamp_us
            and (other := OrderKey.decode(one.order_key)).server_transaction_id
            == key.server_transaction_id
        ]
        records = [other.record_sequence for other in committed]
        claims = self._world.history.claims
        is_late = key.commit_timestamp_us <= max((c.watermark_us for c in claims), default=-1)
        if self._world.history.skipped or is_late:
            return False
        return self._kind == "added" or (
            len(set(records)) > 1 and records.count(key.record_sequence) == 1
        )

    def _another(self, row: DataRow) -> DataRow:
        """Return a change that no transaction has made, under an offset of its own."""
        key = OrderKey.decode(row.order_key)
        high, low = key.record_sequence
        number, body = unframe(row.value)
        schema = fastavro.parse_schema(dict(self._world.registry.schema(number)))
        change = fastavro.schemaless_reader(io.BytesIO(body), schema, None)
        change["source"]["record_sequence"] += "9"
        written = io.BytesIO()
        fastavro.schemaless_writer(written, schema, change)
        order_key = replace(key, record_sequence=(high, low + _FAR)).encode()
        value = frame(number, written.getvalue())
        return replace(row, order_key=order_key, value=value, offset=row.offset + _FAR)
