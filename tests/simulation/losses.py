"""What is lost, damaged or copied between Kafka and the gate, and in the gate's own files.

A seed has one such fault at most, drawn from generators of its own, and copies beside it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

import fastavro

from tests.simulation.gate_decoding import signed
from tests.simulation.gate_rows import DataRow, Segments
from tidegate.producer.memory.broker import TOMBSTONE, Entry, Log
from tidegate.schemas.checksums import origin_of
from tidegate.schemas.instants import NS_PER_US
from tidegate.schemas.order_key import OrderKey
from tidegate.schemas.progress import PartitionFinished
from tidegate.schemas.wire_format import frame, unframe

LOSSES = ("lost", "added")
_CHANCE = 0.25
_CHANCE_WHOLE = 0.5
_ROWS_TO_WHOLE_MAX = 40
_ROWS_MAX = 150
_FAR = 1 << 40


class Losses:
    """What happens to one record of the seed, in every attempt to read it."""

    def __init__(self, world, seed: int) -> None:
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
        self.transaction = ""  # the transaction that is no longer whole; empty before the fault
        self.vanished: set[bytes] = set()  # the order keys of a transaction that is lost as a whole
        self.origins: set[int] = set()  # where its changes come from
        self._begun: set[tuple[int, str]] = set()
        self._gone: tuple[int, str] | None = None
        self._names_all = True

    def read(self, rows: Iterable[DataRow]) -> Iterator[DataRow]:
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
            and any(ends_us.get(origin, through_us + 1) <= through_us for origin in self.origins)
        )

    @property
    def is_active(self) -> bool:
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
        number, body = unframe(row.value)
        schema = fastavro.parse_schema(dict(self._world.registry.schema(number)))
        return number, schema, fastavro.schemaless_reader(io.BytesIO(body), schema, None)


DAMAGES = ("deleted", "emptied", "halved", "swapped", "changed")
_DAMAGE_CHANCE = 0.12
_STEPS_MAX = 400


class Damage:
    """The damage of one seed, done once, between two steps of a consumer."""

    def __init__(self, seed: int, tell: Callable[[str], None]) -> None:
        self._random = random = Random(f"damage {seed}")
        self._kind = random.choice(DAMAGES) if random.random() < _DAMAGE_CHANCE else ""
        self._due = random.randint(1, _STEPS_MAX)
        self._tell = tell
        self.is_done = False

    def step(self, segments: Segments) -> None:
        self._due -= 1
        names = sorted(name for name, rows in segments.items() if rows)
        if not self._kind or self.is_done or self._due > 0 or not names:
            return
        name = self._random.choice(names)
        rows = segments[name]
        match self._kind:
            case "deleted":
                del segments[name]
            case "emptied":
                segments[name] = []
            case "halved":
                segments[name] = rows[: len(rows) // 2]
            case "swapped":
                others = [one for one in names if segments[one] != rows]
                if not others:
                    return
                # Of the same size, if there is one: then no count shows it.
                other = min(others, key=lambda one: abs(len(segments[one]) - len(rows)))
                segments[name], segments[other] = segments[other], rows
            case "changed":
                segments[name] = [*rows[:-1], rows[0]]
                if len(rows) == 1:
                    return
        self.is_done = True
        self._tell(f"segment {self._kind}")


_DAMAGED = 0.15  # part of the seeds whose copies have other content
_RECENT = 5


class Copies:
    def __init__(self, world, seed: int) -> None:
        self._world = world
        self._added: list[Entry] = []
        self.are_damaged = Random(f"copies {seed}").random() < _DAMAGED

    def __contains__(self, entry: Entry) -> bool:
        return any(entry is copy for copy in self._added)

    def add(self) -> None:
        world = self._world
        topic = world.random.choice(world.data_topics)
        log = world.broker.logs.get((topic, world.random.randrange(world.weather.topic_partitions)))
        read = log.read(0) if log is not None else ()
        entries = [entry for entry in read if entry.value is not TOMBSTONE]
        if log is None or not entries:
            return
        entry = world.random.choice(entries[-_RECENT:])
        if self.are_damaged and world.ground.keeps_data:  # or else the original may be gone
            log, entry = self._damaged(log.place[0], entry, entries)
        log.append(entry.key, entry.value, None)
        self._added.append(log.entries[-1])

    def _damaged(self, topic: str, entry: Entry, entries: list[Entry]) -> tuple[Log, Entry]:
        """Return a record with the order key of one change and the content of another."""
        world = self._world
        meant: Any = entry.value
        other: Any = world.random.choice(entries[-_RECENT:]).value
        if other.value != meant.value:
            world.tell("consumer", "fault", "a copy with other content")
            entry = replace(entry, value=meant._replace(key=other.key, value=other.value))
        number = world.random.randrange(world.weather.topic_partitions)
        return world.broker.logs[topic, number], entry
