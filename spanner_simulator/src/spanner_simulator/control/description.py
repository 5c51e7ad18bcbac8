"""Stream partitions and fault rules as JSON objects of the control port."""

from __future__ import annotations

from typing import Any

from spanner_simulator.core.change_streams.stream_partition import StreamPartition
from spanner_simulator.core.database import Database
from spanner_simulator.core.key_encoding import decode_key
from spanner_simulator.core.rows.storage import KeyRange
from spanner_simulator.core.values import encode
from spanner_simulator.server.faults import FaultRule
from spanner_simulator.server.host import HostedDatabase


def describe_stream_partition(
    hosted: HostedDatabase, partition: StreamPartition, *, is_held: bool
) -> dict[str, Any]:
    """One stream partition, live or ended; bounds as table and key if they are keys."""
    return {
        "token": partition.token,
        "start_timestamp_us": partition.start_us,
        "end_timestamp_us": partition.end_us,
        "parents": list(partition.parents),
        "children": [child.token for child in partition.children],
        **_range(hosted.database, KeyRange(partition.low, partition.high)),
        # With mutable key ranges, the keys between the two bounds need not all be its own.
        "ranges": [_range(hosted.database, keys) for keys in partition.ranges],
        "tables": _tables(hosted.database, partition),
        "records": len(partition.records),
        "recently_written_keys": len(set(partition.recent_keys)),
        "readers": len(hosted.readers.get(partition.token, ())),
        "is_held": is_held,
    }


def _range(database: Database, keys: KeyRange) -> dict[str, Any]:
    return {
        "low": _bound(database, keys.low),
        "high": None if keys.high is None else _bound(database, keys.high),
    }


def _bound(database: Database, key: bytes) -> dict[str, Any]:
    """A border as table and key if it is a key, and always as hexadecimal digits."""
    for table in database.catalogue.tables.values():
        if key == table.prefix:
            return {"table": table.name, "key": [], "hex": key.hex()}
        values = decode_key(key, table.prefix, table.key_parts)
        if values is not None:
            plain = [
                encode(kind, value)
                for (kind, *_), value in zip(table.key_parts, values, strict=True)
            ]
            return {"table": table.name, "key": plain, "hex": key.hex()}
    return {"table": None, "key": None, "hex": key.hex()}


def _tables(database: Database, partition: StreamPartition) -> list[str]:
    return [
        table.name
        for table in database.catalogue.tables.values()
        if any(
            (keys.high is None or table.prefix < keys.high)
            and keys.low < table.prefix[:-1] + b"\x01"
            for keys in partition.ranges
        )
    ]


def describe_fault(rule: FaultRule) -> dict[str, Any]:
    """A fault rule as it was added, with its number and how often it has fired."""
    names = ("number", "method", "database", "stream", "token")
    of_fault = ("kind", "when", "after_rows", "code", "message", "delay_ms")
    description = {name: getattr(rule, name) for name in names}
    description |= {name: getattr(rule.fault, name) for name in of_fault}
    description |= {name: getattr(rule, name) for name in ("count", "probability", "seed", "fired")}
    return description | {"code": rule.fault.code.name}
