"""Files as Datastream writes them, for tests: five sources, out of order, twice, with a backfill.

The forms of events are those of the demo's writer.  `history` returns the
changes of a small table in the order in which the source made them; `delivered` returns what a
stream writes of them: the changes within a window out of order, some twice, and rows of a backfill
between them; `write_stream` lays them out as files.  Tables with all that the documentation has are
in `datastream_table`.
"""

from __future__ import annotations

import copy
import gzip
import json
import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

from tidegate.local_stack.demo import event_forms as forms
from tidegate.local_stack.demo.event_forms import (
    CDC,
    SOURCES,
    Named,
    backfill_event,
    change_event,
    event_schema,
)

_NAMES = {
    "mysql": {"table": "orders", "database": "shop"},
    "oracle": {"schema": "SHOP", "table": "ORDERS", "database": "XE"},
    "postgresql": {"schema": "public", "table": "orders"},
    "sqlserver": {"schema": "dbo", "table": "orders", "database": "shop"},
    "salesforce": {"object_name": "Order", "domain": "shop.example"},
}
_OBJECT = {
    "mysql": "shop_orders",
    "oracle": "SHOP_ORDERS",
    "postgresql": "public_orders",
    "sqlserver": "dbo_orders",
    "salesforce": "Order",
}
TABLES = {source: Named(source, _OBJECT[source], _NAMES[source], "") for source in SOURCES}
START_MS = 1_700_000_000_000
_KEY = "id"
ADDED_COLUMN = "added"
"""A column that a table got later; its events' schema has it from then on."""
_NULL_STRING, _NULL_LONG = ["null", "string"], ["null", "long"]
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

_ADDED = {"name": ADDED_COLUMN, "type": _NULL_STRING, "default": None}


def schema_of(source: str, events: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """Return the schema of a file with these events, which have one; fields are in their order."""
    payload, has_primary_keys = list(_PAYLOAD), True
    if events:
        (has_added, has_primary_keys), *others = {_schema_key(event) for event in events}
        assert not others, "events of several schemas in one file"
        payload += [_ADDED] if has_added else []
    found = event_schema(source, _OBJECT[source], payload, has_primary_keys=has_primary_keys)
    return _in_order_of(events[0], found) if events else found


def in_another_order(event: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """Return an event with its fields, and those of its records, in an order of that chance."""
    names = rng.sample(list(event), len(event))
    return {
        name: in_another_order(event[name], rng) if isinstance(event[name], dict) else event[name]
        for name in names
    }


def _in_order_of(event: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Return a record's schema with its fields as the event has them; others follow."""
    places = {name: place for place, name in enumerate(event)}
    fields = sorted(schema["fields"], key=lambda one: places.get(one["name"], len(places)))
    ordered = [
        {**one, "type": _in_order_of(event[one["name"]], one["type"])}
        if isinstance(event.get(one["name"]), dict)
        else one
        for one in fields
    ]
    return {**schema, "fields": ordered}


def of_one_schema(events: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return the events in runs that a file can hold, each of one schema."""
    return [list(some) for _, some in groupby(events, _schema_key)]


def _schema_key(event: dict[str, Any]) -> tuple[bool, bool]:
    return ADDED_COLUMN in event["payload"], "primary_keys" in event["source_metadata"]


def history(source: str, rng: random.Random, changes: int) -> list[dict[str, Any]]:
    """Return changes in the order of the source; positions grow past what text would sort."""
    found, at_ms = [], START_MS
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
    read_ms = START_MS + 500
    return [
        backfill_event(
            TABLES[source], number, read_ms=read_ms, key=_KEY, payload=plain_row(number, number),
            uuid=f"aaaaaaaa-0000-0000-0000-0000{rng.getrandbits(32):08x}{number:08x}",
            blank=rng.choice(("", 0)) if source == "mysql" else "",
        )
        for number in range(rows)
    ]  # fmt: skip


def plain_row(number: int, key: int) -> dict[str, Any]:
    """Return the row of a key as it is after the n-th event."""
    return {
        _KEY: key,
        "note": f"change {number}",
        "at": (START_MS + number) * 1_000,
        "price": (100 + number).to_bytes(4, "big"),
    }


def _event(source: str, number: int, at_ms: int, *, key: int, change_type: str) -> dict[str, Any]:
    return change_event(
        TABLES[source], number, at_ms=at_ms, read_ms=START_MS + 5_000 + number, key=_KEY,
        uuid=f"3c0ffaeb-b16e-4c8c-91d4-{number:012x}", change_type=change_type,
        payload=plain_row(number, key),
    )  # fmt: skip


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
    return forms.avro_bytes(schema_of(source, events), events, codec=codec, per_block=per_block)


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
    sevens = [events[start : start + 7] for start in range(0, len(events), 7)]
    for number, some in enumerate(run for one in sevens for run in of_one_schema(one)):
        minute = first + timedelta(minutes=number)
        place = folder / minute.strftime("%Y/%m/%d/%H/%M")
        place.mkdir(parents=True, exist_ok=True)
        data = avro_bytes(source, some, per_block=600) if form == "avro" else json_bytes(some)
        path = place / f"{number:04d}_{CDC[source]}_0.{form}"
        path.write_bytes(gzip.compress(data) if form.endswith(".gz") else data)
        yield path
