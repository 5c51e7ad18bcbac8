"""A run's history, complete: with what Kafka, the sinks and the cores hold in the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.history import Parked, Published, PutBack, SlotEntry
from tidegate.producer.memory.log import TOMBSTONE
from tidegate.producer.messages import FORM_REDRIVEN
from tidegate.schemas.change_schema import row_fields
from tidegate.schemas.checksums import origin_of, parked_key
from tidegate.schemas.wire_format import unframe

if TYPE_CHECKING:
    from tests.simulation.world import World
    from tidegate.producer.memory.log import Entry, Transaction
    from tidegate.producer.messages import ChangeMessage, ParkedChange

__all__ = ["collect"]


def collect(world: World) -> None:
    """Complete the run's history."""
    history = world.history
    world.broker.settle()
    history.committed = world.spanner.committed
    history.filtered = world.spanner.filtered
    history.tombstones = world.weather.tombstones
    history.lineage = world.spanner.facts()
    for topic in world.data_topics:
        entries, tombstones = _without_tombstones(world, topic)
        used = {unframe(entry.value.value)[0] for _, _, entry in entries}  # type: ignore[attr-defined]
        schemas = {one: row_fields(world.registry.schema(one)) for one in sorted(used)}
        widest = max(schemas, key=lambda one: len(schemas[one]), default=None)
        for number, offset, entry in entries:
            message: ChangeMessage = entry.value  # type: ignore[assignment]
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
        change: ParkedChange = entry.value  # type: ignore[assignment]  # all of this topic are
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
            SlotEntry(slot, o, records[o].value)  # type: ignore[arg-type]
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


def _without_tombstones(
    world: World, topic: str
) -> tuple[list[tuple[int, int, Entry]], set[Entry]]:
    """Return a data topic's changes with their places, and those that a tombstone follows.

    Of the same transaction: another worker may write in between.
    """
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


def _measure_workers(world: World) -> None:
    """After healing only what lives may be in memory."""
    held = sum(len(s.tokens) for n in world.nodes for s in n.worker.slots.values())
    world.measure("stream partitions in workers", held, world.spanner.living)
    for node in world.nodes:
        node.process.settle()  # readers that were stopped a moment ago
        readers = sum(thread.is_alive() for thread in node.process.threads) - 1
        world.measure("readers without a query", readers - len(node.loop._runner._readers), 0)
