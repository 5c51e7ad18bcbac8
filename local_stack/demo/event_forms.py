"""Events of Google Datastream's five sources as it writes them: fields, schemas, places, bytes.

Follows Datastream's page "Events and streams" and the forms of real files.  Where the two differ,
an event has the form of files unless a caller asks for the page's: `postgresql-cdc`, and
`primary_keys` of Oracle and SQL Server, which the page's tables do not have.  Imports nothing of
the producer, which reads these files, so that it cannot repeat the producer's mistakes.  Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import fastavro

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
_NULL_STRING, _NULL_LONG = ["null", "string"], ["null", "long"]
_STRINGS = {"type": "array", "items": "string"}
_SHARED: list[dict[str, Any]] = [
    {"name": "change_type", "type": _NULL_STRING},
    {"name": "is_deleted", "type": ["null", "boolean"]},
]
_PRIMARY_KEYS = {"name": "primary_keys", "type": ["null", _STRINGS]}
_METADATA: dict[str, list[dict[str, Any]]] = {
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
_SYNC_MARKER = bytes(range(16))
_BLOCK_BYTES = 16_000


@dataclass(frozen=True, slots=True)
class Named:
    """A table of a source, in the names of its events."""

    source: str
    object_name: str
    """Datastream's object: the folder of its files."""
    metadata: Mapping[str, str]
    topic_name: str
    """The table as the producer's topics and the consumer's tables name it."""


def named(source: str, *, database: str, table: str) -> Named:
    """Return a table's names as a source of that kind has them."""
    match source:
        case "mysql":
            metadata = {"table": table, "database": database}
            return Named(source, f"{database}_{table}", metadata, f"{database}.{table}")
        case "oracle":
            schema, table = database.upper(), table.upper()
            metadata = {"schema": schema, "table": table, "database": "XE"}
            return Named(source, f"{schema}_{table}", metadata, f"{schema}.{table}")
        case "postgresql":
            metadata = {"schema": "public", "table": table}
            return Named(source, f"public_{table}", metadata, f"public.{table}")
        case "sqlserver":
            metadata = {"schema": "dbo", "table": table, "database": database}
            return Named(source, f"dbo_{table}", metadata, f"dbo.{table}")
        case _:
            name = table.title()
            return Named(source, name, {"object_name": name, "domain": f"{database}.example"}, name)


def event_schema(
    source: str,
    object_name: str,
    payload: Sequence[Mapping[str, Any]],
    *,
    has_primary_keys: bool = True,
) -> dict[str, Any]:
    """Return the Avro schema of a file's events; `payload` are the fields of a row."""
    keys = [_PRIMARY_KEYS] if has_primary_keys else []
    millis = {"type": "long", "logicalType": "timestamp-millis"}
    names = ("object", "read_method", "stream_name", "schema_key")
    strings: list[dict[str, Any]] = [{"name": name, "type": "string"} for name in names]
    return {
        "type": "record",
        "name": object_name,
        "fields": [
            {"name": "uuid", "type": "string"},
            {"name": "read_timestamp", "type": millis},
            {"name": "source_timestamp", "type": millis},
            *strings,
            {"name": "sort_keys", "type": {"type": "array", "items": ["string", "long"]}},
            {
                "name": "source_metadata",
                "type": {
                    "type": "record",
                    "name": "source_metadata",
                    "fields": [*_METADATA[source], *_SHARED, *keys],
                },
            },
            {
                "name": "payload",
                "type": {"type": "record", "name": "payload", "fields": list(payload)},
            },
        ],
    }


def change_event(
    table: Named,
    number: int,
    *,
    at_ms: int,
    read_ms: int,
    uuid: str,
    change_type: str,
    payload: Mapping[str, Any],
    key: str = "id",
    key_fields: Mapping[str, Sequence[str] | None] | None = None,
    per_log: int = 3,
    read_method: str = "",
) -> dict[str, Any]:
    """Return the event of the source's n-th change; `at_ms` is its time, by the source's clock.

    Events of one number are at one place of the source's log, as both halves of an UPDATE of a key.
    A file of MySQL's log has `per_log` changes.  `key_fields` are the fields that name the key, if
    it is not `primary_keys` with `key`; none for Oracle as the page has it.
    """
    named_keys = {"primary_keys": [key]} if key_fields is None else key_fields
    metadata, sort_keys = _place_of(table.source, number, at_ms, per_log)
    return {
        "uuid": uuid,
        "read_timestamp": read_ms,
        "source_timestamp": at_ms,
        "object": table.object_name,
        "read_method": read_method or CDC[table.source],
        "stream_name": "projects/1/locations/us-central1/streams/orders",
        "schema_key": "9f27b298cbb12fabad44da8a6d139b8fb5cdb43c",
        "sort_keys": sort_keys,
        "source_metadata": {
            **table.metadata,
            **metadata,
            "change_type": change_type,
            "is_deleted": change_type in ("DELETE", "UPDATE-DELETE"),
            **named_keys,
        },
        "payload": dict(payload),
    }


def backfill_event(
    table: Named,
    number: int,
    *,
    read_ms: int,
    uuid: str,
    payload: Mapping[str, Any],
    key: str = "id",
    key_fields: Mapping[str, Sequence[str] | None] | None = None,
    blank: str | int = "",
    read_method: str = "",
) -> dict[str, Any]:
    """Return a row as Datastream read it; it has no place among the changes.

    `blank` is what MySQL's sort keys have in place of a log's name: a text or a number.
    """
    event = change_event(
        table, number, at_ms=read_ms, read_ms=read_ms, uuid=uuid, change_type="INSERT",
        payload=payload, key=key, key_fields=key_fields,
        read_method=read_method or _BACKFILL[table.source],
    )  # fmt: skip
    metadata = event["source_metadata"]
    match table.source:
        case "mysql":
            metadata.update(log_file="", log_position=0)
            event["sort_keys"] = [read_ms, blank, 0]
        case "oracle":
            metadata.update(scn=None, ssn=None, rs_id=None, tx_id=None, log_file=None)
            event["sort_keys"] = [read_ms, 0, "", 0]
        case "postgresql":
            metadata.update(lsn=None, tx_id=None)
            event["sort_keys"] = [read_ms, ""]
        case "sqlserver":
            metadata.update(lsn=None, tx_id=None)
            event["sort_keys"] = [read_ms]
        case _:
            pass  # Salesforce has a time only
    return event


def _place_of(
    source: str, number: int, at_ms: int, per_log: int
) -> tuple[dict[str, Any], list[Any]]:
    """Return the source's own fields and the sort keys of its n-th change.

    Positions grow past what text would sort.
    """
    match source:
        case "mysql":
            # From the last file of six digits on: as text, 1000000 is before 999999.
            log_file = f"mysql-bin.{999_999 + number // per_log:06d}"
            position = 900 + number % per_log * 200
            return {"log_file": log_file, "log_position": position}, [at_ms, log_file, position]
        case "oracle":
            rs_id = f"0x{0xFF_FFFE + number // 4:06x}.{0xFFFF + number // 2:08x}.01d0"
            scn, ssn = 15_869_116_216_871 + number, number % 2 * 9 + number % 2
            place = {"scn": scn, "rs_id": rs_id, "ssn": ssn, "row_id": f"AAAEALAAEAAAACd{number}"}
            return {**place, "tx_id": "0.1.2", "log_file": ""}, [at_ms, scn, rs_id, ssn]
        case "postgresql":
            # As text, 10/… is before 9/….
            lsn = f"{(9 << 32) + 0xFFFF_FFF0 + 8 * number >> 32:X}/"
            lsn += f"{(0xFFFF_FFF0 + 8 * number) & 0xFFFF_FFFF:X}"
            return {"tx_id": 700 + number, "lsn": lsn}, [at_ms, lsn]
        case "sqlserver":
            lsn = f"{0x25 + number // 6:08x}:{0x728 + number // 2:08x}:{1 + number % 2:04x}"
            place = {"lsn": lsn, "tx_id": f"0000:{number:08x}", "physical_location": [1, 2, number]}
            return {**place, "replication_index": None}, [at_ms, lsn]
        case _:
            return {}, [at_ms]


def avro_bytes(
    schema: Mapping[str, Any],
    events: Sequence[Mapping[str, Any]],
    *,
    codec: str = "null",
    per_block: int = 0,
) -> bytes:
    """Return an Avro container file; `per_block` is the size of a block in bytes, about."""
    out = BytesIO()
    fastavro.writer(
        out, fastavro.parse_schema(dict(schema)), events, codec=codec,
        sync_interval=per_block or _BLOCK_BYTES, sync_marker=_SYNC_MARKER,
    )  # fmt: skip
    return out.getvalue()
