"""The records that stream partitions with mutable key ranges write about a turn.

All records of one turn have its time T. A parent names its children in start records (of several
parents only the first one does), then writes that its keys went out, then that it ends. A
stream partition that gains keys writes from where. No two turns of a change stream share a T:
otherwise two stream partitions that exchange keys could wait for each other.
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
    """A record sequence: `order` tells transactions and turns apart and grows with them."""
    return f"{order:016x}-{number:08x}"


def announce_succession(
    parents: Sequence[StreamPartition],
    children: Sequence[StreamPartition],
    *,
    at_us: int,
    order: int,
) -> None:
    """Parents hand all their keys to children and end."""
    names = tuple(child.token for child in children)
    for index, parent in enumerate(parents):
        number = 0
        if index == 0:
            for name in names:
                parent.append(
                    PartitionStartRecord(at_us * 1000, sequence_text(order, number), (name,))
                )
                number += 1
        parent.append(
            PartitionEventRecord(
                at_us, sequence_text(order, number), parent.token, move_out_destinations=names
            )
        )
        parent.append(
            PartitionEndRecord(at_us, sequence_text(order, number + 1), parent.token),
        )
    sources = tuple(parent.token for parent in parents)
    for child in children:
        child.append(
            PartitionEventRecord(
                at_us, sequence_text(order, 0), child.token, move_in_sources=sources
            )
        )


def announce_keys_moved(
    source: StreamPartition, destination: StreamPartition, *, at_us: int, order: int
) -> None:
    """Two living ones: keys went from the one to the other."""
    source.append(
        PartitionEventRecord(
            at_us,
            sequence_text(order, 0),
            source.token,
            move_out_destinations=(destination.token,),
        )
    )
    destination.append(
        PartitionEventRecord(
            at_us, sequence_text(order, 0), destination.token, move_in_sources=(source.token,)
        )
    )
