"""Events and files of them as Datastream writes them from MySQL, for the benchmark of files.

A change is an UPDATE of a row with the eight columns of the other benchmarks' table.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro

IN_FILE = 1_000
OBJECTS = 4
_NULL = "null"


def write_objects(folder: Path, changes: int, *, objects: int = OBJECTS) -> None:
    """Write so many changes below a folder, the same number for each object, a file a minute."""
    each = changes // objects
    count = -(-each // IN_FILE)
    first = datetime.now(UTC) - timedelta(minutes=count + 5)
    for number in range(objects):
        table = f"Accounts{number}"
        for file in range(count):
            at = first + timedelta(minutes=file)
            place = folder / f"bank_{table}" / at.strftime("%Y/%m/%d/%H/%M")
            place.mkdir(parents=True)
            rows = range(file * IN_FILE, min((file + 1) * IN_FILE, each))
            events = (event_of(table, one, at) for one in rows)
            (place / f"{file:06d}.avro").write_bytes(file_bytes(table, events))


def file_bytes(table: str, events: Iterable[dict[str, Any]]) -> bytes:
    """Return a file with events of `event_of`."""
    out = BytesIO()
    fastavro.writer(out, fastavro.parse_schema(_schema(table)), events)
    return out.getvalue()


def _schema(table: str) -> dict[str, Any]:
    def optional(kind: Any) -> list[Any]:
        return [_NULL, kind]

    def record(name: str, **types: Any) -> dict[str, Any]:
        fields = [{"name": one, "type": kind} for one, kind in types.items()]
        return {"type": "record", "name": name, "fields": fields}

    strings = {"type": "array", "items": "string"}
    millis = {"type": "long", "logicalType": "timestamp-millis"}
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 2}
    micros = {"type": "long", "logicalType": "timestamp-micros"}
    text, number, flag = map(optional, ("string", "long", "boolean"))
    metadata = record(
        "source_metadata", table="string", database="string", primary_keys=optional(strings),
        log_file=text, log_position=number, change_type=text, is_deleted=flag,
    )  # fmt: skip
    payload = record(
        "payload", Id=number, Owner=text, Balance=optional(decimal), Branch=text,
        Opened=optional({"type": "int", "logicalType": "date"}), Active=flag, Score=number,
        Updated=optional(micros),
    )  # fmt: skip
    return record(
        f"bank_{table}", uuid="string", read_timestamp=millis, source_timestamp=millis,
        object="string", read_method="string", stream_name="string", schema_key="string",
        sort_keys={"type": "array", "items": ["string", "long"]}, source_metadata=metadata,
        payload=payload,
    )  # fmt: skip


def event_of(table: str, number: int, at: datetime) -> dict[str, Any]:
    """Return the record of a table's n-th change in an Avro file; `at` is when its file begins."""
    at_ms = int(at.timestamp() * 1_000) + number % IN_FILE
    log_file, position = f"mysql-bin.{number // IN_FILE + 1:06d}", 4 + number % IN_FILE * 200
    return {
        "uuid": f"{hash(table) & 0xFFFF_FFFF:08x}-b16e-4c8c-91d4-{number:012x}",
        "read_timestamp": at_ms + 700,
        "source_timestamp": at_ms,
        "object": f"bank_{table}",
        "read_method": "mysql-cdc-binlog",
        "stream_name": "projects/1/locations/us-central1/streams/bank",
        "schema_key": "9f27b298cbb12fabad44da8a6d139b8fb5cdb43c",
        "sort_keys": [at_ms, log_file, position],
        "source_metadata": {
            "table": table, "database": "bank", "primary_keys": ["Id"], "log_file": log_file,
            "log_position": position, "change_type": "UPDATE-INSERT", "is_deleted": False,
        },
        "payload": {
            "Id": number % 10_000, "Owner": f"owner {number % 100:02d} of an account",
            "Balance": (number * 100 + 25).to_bytes(8, "big"), "Branch": f"branch {number % 5}",
            "Opened": 19_800 + number % 100, "Active": number % 3 == 0, "Score": number * 997,
            "Updated": at_ms * 1_000 + number % 1_000,
        },
    }  # fmt: skip
