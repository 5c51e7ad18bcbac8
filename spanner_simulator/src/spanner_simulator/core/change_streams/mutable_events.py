"""The records of stream partitions with mutable key ranges about a turn.

All records of one turn have its time T. A parent names its children in start records (only the
first of several parents does), then writes that its keys moved out, then that it ends.  A stream
partition that gains keys writes their source.  No two turns of a change stream share a T: otherwise
two stream partitions that exchange keys could wait for each other.
"""

from __future__ import annotations

from collections.abc import Sequence

from spanner_simulator.core.change_streams.records import (
    PartitionEndRecord,
    PartitionEventRecord,
    PartitionStartRecord,
)
from spanner_simulator.core.change_streams.stream_partition import StreamPartition


def sequence_text(order: int, number: int) -> str:
    """A record sequence: `order` distinguishes transactions and turns, and grows with them."""
    return f"{order:016x}-{number:08x}"


def announce_succession(
    parents: Sequence[StreamPartition],
    children: Sequence[StreamPartition],
    *,
    at_us: int,
    order: int,
) -> None:
    """Write that parents hand all their keys to children and end."""
    names = tuple(child.token for child in children)
    for index, parent in enumerate(parents):
        named = names if index == 0 else ()
        texts = [sequence_text(order, number) for number in range(len(named) + 2)]
        for name, text in zip(named, texts, strict=False):
            parent.append(PartitionStartRecord(at_us * 1000, text, (name,)))
        parent.append(
            PartitionEventRecord(at_us, texts[-2], parent.token, move_out_destinations=names)
        )
        parent.append(PartitionEndRecord(at_us, texts[-1], parent.token))
    sources = tuple(parent.token for parent in parents)
    text = sequence_text(order, 0)
    for child in children:
        child.append(PartitionEventRecord(at_us, text, child.token, move_in_sources=sources))


def announce_keys_moved(
    source: StreamPartition, destination: StreamPartition, *, at_us: int, order: int
) -> None:
    """Write that keys moved from one live stream partition to another."""
    text = sequence_text(order, 0)
    source.append(
        PartitionEventRecord(at_us, text, source.token, move_out_destinations=(destination.token,))
    )
    destination.append(
        PartitionEventRecord(at_us, text, destination.token, move_in_sources=(source.token,))
    )
