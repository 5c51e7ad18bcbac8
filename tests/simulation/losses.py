"""Records that are lost between Kafka and the gate, or come there without having been published.

A seed has one such fault at most, drawn from generators of its own.  The same offsets are lost in
every attempt at a batch, so nothing that the gate counts of its own rows shows it.  What the
records of a transaction state does, and for a transaction that is lost as a whole what the marker
of its stream partition states, once a release passes that.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import fastavro

from tests.simulation.gate_decoding import signed
from tests.simulation.gate_rows import DataRow
from tidegate.schemas.checksums import origin_of
from tidegate.schemas.instants import NS_PER_US
from tidegate.schemas.order_key import OrderKey
from tidegate.schemas.progress import PartitionFinished
from tidegate.schemas.wire_format import frame, unframe

if TYPE_CHECKING:
    from tests.simulation.world import World

__all__ = ["LOSSES", "Losses"]

LOSSES = ("lost", "added")
_CHANCE = 0.25
_CHANCE_WHOLE = 0.5
_ROWS_TO_WHOLE_MAX = 40
_ROWS_MAX = 150
_FAR = 1 << 40


class Losses:
    """What happens to one record of the seed, in every attempt to read it."""

    def __init__(self, world: World, seed: int) -> None:
        """Draw whether there is a fault; it waits for a record whose loss can be shown."""
        random = Random(f"losses {seed}")
        # A record that is left out, or parked and put back later, is absent on purpose.
        is_possible = not world.weather.parks and world.weather.record_filter.is_empty
        self._world = world
        self._kind = random.choice(LOSSES) if is_possible and random.random() < _CHANCE else ""
        self._due = random.randint(1, _ROWS_MAX)
        whole = Random(f"whole transactions lost {seed}")
        if is_possible and not self._kind and whole.random() < _CHANCE_WHOLE:
            self._kind = "vanished"
            self._due = whole.randint(1, _ROWS_TO_WHOLE_MAX)
        self._seen: set[tuple[str, int, int]] = set()
        self._place: tuple[str, int, int] | None = None
        self.transaction = ""
        """The transaction that is no longer whole; empty before the fault."""
        self.vanished: set[bytes] = set()
        """The order keys of a transaction that is lost as a whole."""
        self.origins: set[int] = set()
        """Where its changes come from."""
        self._begun: set[tuple[int, str]] = set()
        self._gone: tuple[int, str] | None = None
        self._names_all = True

    def read(self, rows: Iterable[DataRow]) -> Iterator[DataRow]:
        """Yield what the gate gets of the rows that Kafka has."""
        if not self._kind:
            yield from rows
            return
        for row in rows:
            place = (row.topic, row.topic_partition, row.offset)
            if self._kind == "vanished":
                if not self._vanishes(row, place):
                    yield row
                continue
            if self._place is None and place not in self._seen:
                self._seen.add(place)
                self._happen(row, place)
            if place != self._place:
                yield row
            elif self._kind == "added":
                yield row
                yield self._another(row)

    @property
    def must_be_found(self) -> bool:
        """Whether a marker that a release has passed states what is lost as a whole."""
        history = self._world.history
        through_us = max((one.through_us for one in history.released), default=-1)
        ends_us = {
            int.from_bytes(origin_of(body.token), "big", signed=True): body.end_ns // NS_PER_US
            for entry in history.progress
            if isinstance(body := entry.record.body, PartitionFinished)
        }
        # What is not certain is not judged.
        return (
            bool(self.vanished)
            and self._names_all
            and not history.late
            and any(ends_us.get(one, through_us + 1) <= through_us for one in self.origins)
        )

    @property
    def is_active(self) -> bool:
        """Whether this seed loses or adds something."""
        return bool(self._kind)

    def _vanishes(self, row: DataRow, place: tuple[str, int, int]) -> bool:
        key = OrderKey.decode(row.order_key)
        transaction = key.commit_timestamp_us, key.server_transaction_id
        self._names_all &= row.origin is not None
        if self._gone is None and place not in self._seen:
            self._seen.add(place)
            self._due -= 1
            # A part of it may have been read by an earlier batch.
            is_new = transaction not in self._begun
            self._begun.add(transaction)
            if self._due <= 0 and is_new and not self._is_uncertain(key):
                self._gone = transaction
                self._world.tell("consumer", "fault", "a transaction lost after Kafka")
        if transaction != self._gone:
            return False
        self.vanished.add(row.order_key)
        self.origins.add(self._origin(row))
        return True

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
        if self._is_uncertain(key):
            return False
        return self._kind == "added" or (
            len(set(records)) > 1 and records.count(key.record_sequence) == 1
        )

    def _is_uncertain(self, key: OrderKey) -> bool:
        """Whether the change is late, or the reader lacks what had expired."""
        claims = self._world.history.claims
        is_late = key.commit_timestamp_us <= max((c.watermark_us for c in claims), default=-1)
        return bool(self._world.history.skipped) or is_late

    def _another(self, row: DataRow) -> DataRow:
        """Return a change that no transaction has made, under an offset of its own."""
        key = OrderKey.decode(row.order_key)
        high, low = key.record_sequence
        number, schema, change = self._decoded(row)
        change["source"]["record_sequence"] += "9"
        written = io.BytesIO()
        fastavro.schemaless_writer(written, schema, change)
        order_key = replace(key, record_sequence=(high, low + _FAR)).encode()
        value = frame(number, written.getvalue())
        return replace(row, order_key=order_key, value=value, offset=row.offset + _FAR)

    def _origin(self, row: DataRow) -> int:
        """Return the number of the stream partition, which an older value has as its token."""
        if row.origin is not None:
            return row.origin
        _, _, change = self._decoded(row)
        number = signed(origin_of(change["source"]["partition_token"]))
        assert number is not None
        return number

    def _decoded(self, row: DataRow) -> tuple[int, Any, Any]:
        """Return the schema id of a value, the schema and the change."""
        number, body = unframe(row.value)
        schema = fastavro.parse_schema(dict(self._world.registry.schema(number)))
        return number, schema, fastavro.schemaless_reader(io.BytesIO(body), schema, None)
