"""A run's history, complete: with what Kafka, the sinks and the cores hold in the end."""

from __future__ import annotations

from collections import deque

from tests.simulation.history import FleetRead, FleetSight, Parked, Published, PutBack, SlotEntry
from tidegate.producer.core import events as on
from tidegate.producer.core.fleet import STALE_AFTER_US
from tidegate.producer.memory.broker import TOMBSTONE, Entry, Transaction
from tidegate.producer.messages import FORM_REDRIVEN, ChangeMessage, ParkedChange
from tidegate.schemas.change_schema import row_fields
from tidegate.schemas.checksums import origin_of, parked_key
from tidegate.schemas.wire_format import unframe


def collect(world) -> None:
    history = world.history
    world.broker.settle()
    history.committed = world.spanner.committed
    history.filtered = world.spanner.filtered
    history.tombstones = world.weather.tombstones
    history.lineage = world.spanner.facts()
    for topic in world.data_topics:
        entries, tombstones = _without_tombstones(world, topic)
        used = {unframe(entry.value.value)[0] for _, _, entry in entries}
        schemas = {one: row_fields(world.registry.schema(one)) for one in sorted(used)}
        widest = max(schemas, key=lambda one: len(schemas[one]), default=None)
        for number, offset, entry in entries:
            message: ChangeMessage = entry.value
            decoded = world.decode(message, reader_id=widest)
            history.published.append(
                Published(
                    topic, number, offset, message.order_key, decoded.key,
                    mod=decoded.mod, columns=decoded.columns,
                    origin=message.origin or (origin_of(decoded.token) if decoded.token else b""),
                    has_tombstone=None if entry.transaction is None else entry in tombstones,
                    is_copy=entry in world.copies,
                )
            )  # fmt: skip
        history.value_schemas[topic] = {
            one: {name: str(field["type"]) for name, field in fields.items()}
            for one, fields in schemas.items()
        }
    for _, offset, entry in world.ground.entries(world.names.dead_letter):
        change: ParkedChange = entry.value
        if change.form == FORM_REDRIVEN:
            key = world.decode.key(change.key)
            history.put_back.append(PutBack(change.topic, offset, change.order_key, key))
            continue
        history.parked.append(
            Parked(
                change.topic, offset, change.order_key, world.decode.key(change.key),
                change.reason, change.token, parked_key(change.topic, change.key),
            )
        )  # fmt: skip
    history.poison = world.poison.marked
    history.refused_columns = world.refused_schemas.columns
    history.refused_tables = world.refused_schemas.tables
    history.parked_keys_max = world.weather.parked_keys_max
    kept = list(world.ground.entries(world.names.progress))
    for slot in range(world.slots):
        records = {offset: entry for number, offset, entry in kept if number == slot}
        records |= {o: e for (s, o), e in world.compacted.items() if s == slot}
        history.progress += [
            SlotEntry(slot, o, records[o].value)
            for o in sorted(records)
            if records[o].value is not TOMBSTONE
        ]
    history.released = world.checkpoint.released()
    history.manifests = world.checkpoint.manifested()
    history.captured = dict(world.checkpoint.captured())
    history.mirrors = world.checkpoint.mirrors(world.names.data)
    history.late = [row.order_key for rows in world.checkpoint.late.values() for row in rows]
    losses = world.checkpoint.losses
    is_reported = any("completion marker states" in text for text in history.reported_losses)
    if losses is not None and (is_reported or not losses.must_be_found):
        history.skipped |= losses.vanished
    if not history.broken and not history.unhealed and not history.ground:
        _measure_workers(world)
    history.sizes = list(world.sizes.values())


def _without_tombstones(world, topic: str) -> tuple[list[tuple[int, int, Entry]], set[Entry]]:
    """Return a data topic's changes with their places, and those that a tombstone follows."""
    changes: list[tuple[int, int, Entry]] = []
    followed: set[Entry] = set()
    newest: dict[tuple[Transaction | None, int], Entry] = {}
    for number, offset, entry in sorted(world.ground.entries(topic), key=lambda one: one[:2]):
        before = newest.get((entry.transaction, number))
        newest[entry.transaction, number] = entry
        if entry.value is not TOMBSTONE:
            changes.append((number, offset, entry))
        elif before is None or before.value is TOMBSTONE or before.key != entry.key:
            world.history.lone_tombstones.append((topic, number, offset))
        else:
            followed.add(before)
    return changes, followed


def _measure_workers(world) -> None:
    """After healing only what lives may be in memory."""
    held = sum(len(s.tokens) for n in world.nodes for s in n.worker.slots.values())
    world.measure("stream partitions in workers", held, world.spanner.living)
    for node in world.nodes:
        node.process.settle()  # readers that were stopped a moment ago
        readers = sum(thread.is_alive() for thread in node.process.threads) - 1
        world.measure("readers without a query", readers - len(node.loop._runner._readers), 0)


_LAG_US = STALE_AFTER_US + 2_000_000
"""How old what a worker goes by may be: a view in force, and the time to read and to report it."""


class FleetSights:
    """Notes nothing once offsets of the progress topic mean two lives of it."""

    def __init__(self, world) -> None:
        self._world = world
        self._ends: deque[tuple[int, dict[int, int]]] = deque()
        """Since the faults: when each slot ended where, for readers of what is committed."""

    def read(self, worker: str, event: on.FleetRead) -> None:
        if self._world.ground.final is None:
            read = FleetRead(worker, dict(event.lowest_us), self._slot_ends())
            self._world.history.fleet_reads.append(read)

    def look(self) -> None:
        world = self._world
        if world.ground.final is not None or not world.weather.drift_us:
            return
        ends = self._slot_ends()
        self._ends.append((world.now_us, ends))
        if self._ends[0][0] > world.now_us - _LAG_US:
            return
        while len(self._ends) > 1 and self._ends[1][0] <= world.now_us - _LAG_US:
            self._ends.popleft()
        for node in world.nodes:
            if node.knows_fleet:
                lowest_us = dict(node.worker._fleet._lowest)
                sight = FleetSight(node.name, lowest_us, self._ends[0][1], ends)
                world.history.fleet_sights.append(sight)

    def _slot_ends(self) -> dict[int, int]:
        world = self._world
        return {
            slot: world.broker.logs[world.names.progress, slot].stable_end
            for slot in range(world.slots)
        }
