"""A run's history, complete: with what Kafka, the sinks and the cores hold in the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.history import History, Published, SlotEntry

if TYPE_CHECKING:
    from tests.simulation.world import World
    from tidegate.producer.messages import ChangeMessage

__all__ = ["collected"]


def collected(world: World) -> History:
    """Return the run's history, complete."""
    history = world.history
    world.broker.settle()
    history.committed = world.spanner.committed
    history.lineage = world.spanner.facts()
    for topic in world.data_topics:
        for number in range(world.weather.topic_partitions):
            for entry in world.broker.logs[topic, number].read(0):
                message: ChangeMessage = entry.value
                history.published.append(
                    Published(
                        topic, number, entry.offset, message.order_key, message.key,
                        is_copy=(topic, number, entry.offset) in world.copies,
                    )
                )  # fmt: skip
    for slot in range(world.slots):
        entries = {e.offset: e for e in world.broker.logs[world.names.progress, slot].read(0)}
        entries |= {o: e for (s, o), e in world.compacted.items() if s == slot}
        history.progress += [SlotEntry(slot, o, entries[o].value) for o in sorted(entries)]
    history.released = world.checkpoint.changelog.releases
    history.late = [row.order_key for rows in world.checkpoint.late.values() for row in rows]
    if not history.broken and not history.unhealed:
        _measure_workers(world)
    history.sizes = list(world.sizes.values())
    return history


def _measure_workers(world: World) -> None:
    """After healing only what lives may be in memory."""
    held = sum(len(s.tokens) for n in world.nodes for s in n.worker.slots.values())
    world.measure("stream partitions in workers", held, len(world.spanner.active))
    for node in world.nodes:
        pending = sum(
            p.pending_bytes for s in node.worker.slots.values() for p in s.tokens.values()
        )
        leak = world.taken[node] - pending - node.bytes_in_transit
        world.measure("bytes that nobody holds and nobody gave back", leak, 0)
