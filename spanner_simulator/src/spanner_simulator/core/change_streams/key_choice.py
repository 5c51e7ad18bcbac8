"""Where stream partitions begin, split and merge if the caller names no key.

Borders are chosen from existing and recently written keys, and from the key type's own range if
there are none, so that a split divides the work and not just the bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from spanner_simulator.core.change_streams.stream_partition import StreamPartition
from spanner_simulator.core.key_encoding import midpoint
from spanner_simulator.core.rows.storage import TableRows
from spanner_simulator.core.schema.schema_objects import Table
from spanner_simulator.errors import failed_precondition

_HEX = "0123456789abcdef"


def initial_borders(
    tables: Sequence[Table], rows: Mapping[str, TableRows], count: int
) -> list[bytes]:
    """`count - 1` borders, or fewer without enough keys, divided evenly among the tables."""
    ordered = sorted(tables, key=lambda table: table.prefix)
    if not ordered or count < 2:
        return []
    shares = [count // len(ordered)] * len(ordered)
    for index in range(count % len(ordered)):
        shares[index] += 1
    borders: set[bytes] = set()
    for index, (table, share) in enumerate(zip(ordered, shares, strict=True)):
        if share == 0:
            continue
        if index > 0:
            borders.add(table.prefix)
        existing = rows[table.name.lower()].sample_keys(share - 1)
        borders.update(existing if len(existing) == share - 1 else _typed_borders(table, share))
    return sorted(borders)


def _typed_borders(table: Table, share: int) -> list[bytes]:
    if share < 2 or not table.key_parts:
        return []
    value_type = table.key_parts[0].value_type
    if value_type.code == "INT64":
        step = (1 << 64) // share
        points = [-(1 << 63) + step * index for index in range(1, share)]
        return sorted(table.encoded_key_of([point]) for point in points)
    if value_type.code == "STRING":
        # Random keys are mostly hexadecimal: UUIDs and digests.
        width = 4
        total = len(_HEX) ** width
        return sorted(
            table.encoded_key_of([f"{total * index // share:0{width}x}"])
            for index in range(1, share)
        )
    return []


def split_candidate(live: Sequence[StreamPartition]) -> StreamPartition:
    """The one with the most distinct recently written keys; the widest if no keys were written."""
    busiest = max(live, key=lambda partition: len(set(partition.recent_keys)))
    if len(set(busiest.recent_keys)) > 1:
        return busiest
    return max(live, key=_width)


def _width(partition: StreamPartition) -> int:
    size = 24
    low = int.from_bytes(partition.low[:size].ljust(size, b"\x00"), "big")
    high = partition.high[:size] if partition.high is not None else b"\xff" * size
    return int.from_bytes(high.ljust(size, b"\x00"), "big") - low


def split_key(partition: StreamPartition) -> bytes:
    """A key strictly inside: the median of recent keys, or the middle of the bounds."""
    recent = sorted(set(partition.recent_keys))
    if len(recent) > 1:
        middle = recent[len(recent) // 2]
        if middle > partition.low:
            return middle
    middle_key = midpoint(partition.low, partition.high) if partition.ranges else None
    if middle_key is None:
        raise failed_precondition(f"The stream partition {partition.token} is too narrow to split")
    return middle_key


def merge_candidates(live: Sequence[StreamPartition]) -> list[StreamPartition]:
    """Two neighbours: the least written pair of which both were written, else the least written."""
    if len(live) < 2:
        raise failed_precondition("There is only one live stream partition, so nothing to merge")
    pairs = [list(pair) for pair in pairwise(live)]
    return min(
        pairs,
        key=lambda pair: (
            any(not partition.recent_keys for partition in pair),
            sum(len(set(partition.recent_keys)) for partition in pair),
        ),
    )
