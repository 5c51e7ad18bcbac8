"""Files as Datastream writes them, for tests: five sources, out of order, twice, with a backfill.

Follows Datastream's page "Events and streams" and the forms of real files.  `history` returns the
changes of a small table in the order in which the source made them; `delivered` returns what a
stream writes of them: the changes within a window out of order, some twice, and rows of a backfill
between them; `write_stream` lays them out as files.
"""

from __future__ import annotations

import copy
import gzip
import json
import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro

__all__ = [
    "CDC",
    "SOURCES",
    "avro_bytes",
    "backfill",
    "delivered",
    "history",
    "json_bytes",
    "schema_of",
    "write_stream",
]

SOURCES = ("mysql", "oracle", "postgresql", "sqlserver", "salesforce")
CDC = {
    "mysql": "mysql-cdc-binlog",
    "oracle": "oracle-cdc-logminer",
    "postgresql": "postgresql-cdc",
    "sqlserver": "sqlserver-cdc",
    "salesforce": "salesforce-cdc",
}
_BACKFILL = {
    "mysql": "mysql-backfill-fulldump",
    "oracle": "oracle-backfill",
    "postgresql": "postgresql-backfill",
    "sqlserver": "sqlserver-backfill",
    "salesforce": "salesforce-backfill",
}
_OBJECT = {
    "mysql": "shop_orders",
    "oracle": "SHOP_ORDERS",
    "postgresql": "public_orders",
    "sqlserver": "dbo_orders",
    "salesforce": "Order",
}
_START_MS = 1_700_000_000_000
_KEY = "id"
_NULL_STRING, _NULL_LONG = ["null", "string"], ["null", "long"]
_STRINGS = {"type": "array", "items": "string"}
_SHARED = [
    {"name": "change_type", "type": _NULL_STRING},
    {"name": "is_deleted", "type": ["null", "boolean"]},
    {"name": "primary_keys", "type": ["null", _STRINGS]},
]
_METADATA = {
    "mysql": [
        {"name": "table", "type": "string"},
        {"name": "database", "type": "string"},
        {"name": "log_file", "type": _NULL_STRING},
        {"name": "log_position", "type": _NULL_LONG},
    ],
    "oracle": [
        *({"name": name, "type": "string"} for name in ("schema", "table", "database", "row_id")),
        *({"name": name, "type": _NULL_LONG} for name in ("scn", "ssn")),
        *({"name": name, "type": _NULL_STRING} for name in ("rs_id", "tx_id", "log_file")),
    ],
    "postgresql": [
        {"name": "schema", "type": "string"},
        {"name": "table", "type": "string"},
        {"name": "tx_id", "type": _NULL_LONG},
        {"name": "lsn", "type": _NULL_STRING},
    ],
    "sqlserver": [
        *({"name": name, "type": "string"} for name in ("schema", "table", "database")),
        {"name": "lsn", "type": _NULL_STRING},
        {"name": "tx_id", "type": _NULL_STRING},
        {"name": "physical_location", "type": ["null", {"type": "array", "items": "int"}]},
        {"name": "replication_index", "type": ["null", _STRINGS]},
    ],
    "salesforce": [
        {"name": "object_name", "type": "string"},
        {"name": "domain", "type": "string"},
    ],
}
_PAYLOAD = [
    {"name": _KEY, "type": _NULL_LONG, "default": None},
    {"name": "note", "type": _NULL_STRING, "default": None},
    {
        "name": "at",
        "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}],
        "default": None,
    },
    {
        "name": "price",
        "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}],
        "default": None,
    },
]


def schema_of(source: str) -> dict[str, Any]:
    """Return the schema of a file's events."""
    millis = {"type": "long", "logicalType": "timestamp-millis"}
    strings = ("object", "read_method", "stream_name", "schema_key")
    return {
        "type": "record",
        "name": _OBJECT[source],
        "fields": [
            {"name": "uuid", "type": "string"},
            {"name": "read_timestamp", "type": millis},
            {"name": "source_timestamp", "type": millis},
            *({"name": name, "type": "string"} for name in strings),
            {"name": "sort_keys", "type": {"type": "array", "items": ["string", "long"]}},
            {
                "name": "source_metadata",
                "type": {
                    "type": "record",
                    "name": "source_metadata",
                    "fields": [*_METADATA[source], *_SHARED],
                },
            },
            {
                "name": "payload",
                "type": {"type": "record", "name": "payload", "fields": _PAYLOAD},
            },
        ],
    }


def history(source: str, rng: random.Random, changes: int) -> list[dict[str, Any]]:
    """Return changes in the order of the source; positions grow past what text would sort."""
    found, at_ms = [], _START_MS
    alive: set[int] = set()
    for number in range(changes):
        # The clock of a source that orders by its log may go backwards.
        step = rng.choice((0, 0, 1, 1_000))
        at_ms += 1_000 if source == "salesforce" else step
        if source in ("mysql", "oracle") and rng.random() < 0.1:
            at_ms -= 2_000
        key = rng.randrange(8)
        change_type = _next_change(source, key, alive, rng)
        found.append(_event(source, number, at_ms, key=key, change_type=change_type))
    return found


def _next_change(source: str, key: int, alive: set[int], rng: random.Random) -> str:
    if key not in alive:
        alive.add(key)
        return "INSERT"
    if rng.random() < 0.3:
        alive.remove(key)
        return (
            rng.choice(("DELETE", "UPDATE-DELETE")) if source in ("mysql", "oracle") else "DELETE"
        )
    return "UPDATE-INSERT" if source in ("mysql", "oracle") else "UPDATE"


def backfill(source: str, rng: random.Random, rows: int) -> list[dict[str, Any]]:
    """Return rows of a backfill, all with one sort key; they overlap the changes in keys."""
    read_ms = _START_MS + 500
    found = []
    for number in range(rows):
        event = _event(source, number, read_ms, key=number, change_type="INSERT")
        event["uuid"] = f"aaaaaaaa-0000-0000-0000-0000{rng.getrandbits(32):08x}{number:08x}"
        event["read_method"] = _BACKFILL[source]
        metadata = event["source_metadata"]
        match source:
            case "mysql":
                metadata.update(log_file="", log_position=0)
                event["sort_keys"] = [read_ms, rng.choice(("", 0)), 0]
            case "oracle":
                metadata.update(scn=None, ssn=None, rs_id=None, tx_id=None, log_file=None)
                event["sort_keys"] = [read_ms, 0, "", 0]
            case "postgresql" | "sqlserver":
                metadata.update(lsn=None, tx_id=None)
                event["sort_keys"] = [read_ms, ""] if source == "postgresql" else [read_ms]
        found.append(event)
    return found


def _event(source: str, number: int, at_ms: int, *, key: int, change_type: str) -> dict[str, Any]:
    deleted = change_type in ("DELETE", "UPDATE-DELETE")
    metadata, sort_keys = _place(source, number, at_ms)
    return {
        "uuid": f"3c0ffaeb-b16e-4c8c-91d4-{number:012x}",
        "read_timestamp": _START_MS + 5_000 + number,
        "source_timestamp": at_ms,
        "object": _OBJECT[source],
        "read_method": CDC[source],
        "stream_name": "projects/1/locations/us-central1/streams/orders",
        "schema_key": "9f27b298cbb12fabad44da8a6d139b8fb5cdb43c",
        "sort_keys": sort_keys,
        "source_metadata": {
            **metadata,
            "change_type": change_type,
            "is_deleted": deleted,
            "primary_keys": [_KEY],
        },
        "payload": {
            _KEY: key,
            "note": f"change {number}",
            "at": (_START_MS + number) * 1_000,
            "price": (100 + number).to_bytes(4, "big"),
        },
    }


def _place(source: str, number: int, at_ms: int) -> tuple[dict[str, Any], list[Any]]:
    """Return the source's own fields and the sort keys of its n-th change."""
    match source:
        case "mysql":
            # From the last file of six digits on: as text, 1000000 is before 999999.
            log_file, position = f"mysql-bin.{999_999 + number // 3:06d}", 900 + number % 3 * 200
            place = {"log_file": log_file, "log_position": position}
            return {"table": "orders", "database": "shop", **place}, [at_ms, log_file, position]
        case "oracle":
            rs_id = f"0x{0xFF_FFFE + number // 4:06x}.{0xFFFF + number // 2:08x}.01d0"
            scn, ssn = 15_869_116_216_871 + number, number % 2 * 9 + number % 2
            names = {"schema": "SHOP", "table": "ORDERS", "database": "XE"}
            place = {"scn": scn, "rs_id": rs_id, "ssn": ssn, "row_id": f"AAAEALAAEAAAACd{number}"}
            further = {"tx_id": "0.1.2", "log_file": ""}
            return {**names, **place, **further}, [at_ms, scn, rs_id, ssn]
        case "postgresql":
            # As text, 10/… is before 9/….
            lsn = f"{(9 << 32) + 0xFFFF_FFF0 + 8 * number >> 32:X}/"
            lsn += f"{(0xFFFF_FFF0 + 8 * number) & 0xFFFF_FFFF:X}"
            place = {"tx_id": 700 + number, "lsn": lsn}
            return {"schema": "public", "table": "orders", **place}, [at_ms, lsn]
        case "sqlserver":
            lsn = f"{0x25 + number // 6:08x}:{0x728 + number // 2:08x}:{1 + number % 2:04x}"
            names = {"schema": "dbo", "table": "orders", "database": "shop"}
            place = {"lsn": lsn, "tx_id": f"0000:{number:08x}", "physical_location": [1, 2, number]}
            return {**names, **place, "replication_index": None}, [at_ms, lsn]
        case _:
            return {"object_name": "Order", "domain": "shop.example"}, [at_ms]


def delivered(
    changes: Sequence[dict[str, Any]], rows: Sequence[dict[str, Any]], rng: random.Random
) -> list[dict[str, Any]]:
    """Return the events of a stream as it may deliver them: each once at least, out of order."""
    window = 12
    placed = [(n + rng.uniform(0, window), event) for n, event in enumerate(changes)]
    placed += [(rng.uniform(0, len(changes)), event) for event in rows]
    again = [pair for pair in placed if rng.random() < 0.2]
    placed += [(at + rng.uniform(0, window), copy.deepcopy(event)) for at, event in again]
    return [event for _, event in sorted(placed, key=lambda pair: pair[0])]


def avro_bytes(
    source: str, events: Sequence[dict[str, Any]], *, codec: str = "null", per_block: int = 0
) -> bytes:
    """Return an Avro container file; `per_block` is the size of a block in bytes, about."""
    out = BytesIO()
    fastavro.writer(
        out, fastavro.parse_schema(schema_of(source)), events, codec=codec,
        sync_interval=per_block or 16_000, sync_marker=bytes(range(16)),
    )  # fmt: skip
    return out.getvalue()


def json_bytes(events: Sequence[dict[str, Any]]) -> bytes:
    """Return a file of JSON lines; both forms of Datastream's timestamps are in it."""
    return b"".join(json.dumps(_as_json(event)).encode() + b"\n" for event in events)


def _as_json(event: dict[str, Any]) -> dict[str, Any]:
    payload = {
        **event["payload"],
        "at": _text(event["payload"]["at"] // 1_000),
        "price": int.from_bytes(event["payload"]["price"], "big", signed=True) / 100,
    }
    return {
        **event,
        "read_timestamp": _text(event["read_timestamp"]).replace("T", " "),
        "source_timestamp": _text(event["source_timestamp"]),
        "payload": payload,
    }


def _text(ms: int) -> str:
    instant = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    return instant.replace(tzinfo=None).isoformat(timespec="milliseconds")


def write_stream(
    folder: Path,
    source: str,
    events: Sequence[dict[str, Any]],
    *,
    form: str = "avro",
    first: datetime = datetime(2024, 2, 28, 23, 50, tzinfo=UTC),
) -> list[Path]:
    """Write events into files of a few, one a minute, below `<folder>/<object>/yyyy/mm/dd/hh/mm`.

    `form` is avro, jsonl or jsonl.gz; `first` is the minute of the first file.
    """
    return list(_written(folder / _OBJECT[source], source, events, form, first))


def _written(
    folder: Path, source: str, events: Sequence[dict[str, Any]], form: str, first: datetime
) -> Iterator[Path]:
    for number, start in enumerate(range(0, len(events), 7)):
        minute = first + timedelta(minutes=number)
        place = folder / minute.strftime("%Y/%m/%d/%H/%M")
        place.mkdir(parents=True, exist_ok=True)
        some = events[start : start + 7]
        data = avro_bytes(source, some, per_block=600) if form == "avro" else json_bytes(some)
        path = place / f"{number:04d}_{CDC[source]}_0.{form}"
        path.write_bytes(gzip.compress(data) if form.endswith(".gz") else data)
        yield path
