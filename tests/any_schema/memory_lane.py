"""A world in memory: what two readers decode, compared with what was committed.

One reader is fastavro with its logical types, under the schema that a message names; the other is
the consumer's own, under the newest schema.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from typing import Any

import fastavro

from tests.any_schema.changes import Committed, World
from tests.any_schema.published import Published, PublishedStage, publish
from tests.any_schema.release import NAMES
from tests.any_schema.values import plain, plain_key
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.wire_format import unframe
from tidegate.spark_consumer.core.topic_schemas import row_columns
from tidegate.spark_consumer.sinks.row_decoding import decode_rows

_SIDES = ("new", "old")


def differences(world: World) -> list[str]:
    """Return a line for each difference."""
    registry = InMemorySchemaRegistry()
    stages = publish(world, registry)
    reader = _Reader(registry)
    found = [line for stage in stages for line in _of_stage(stage, reader)]
    return found + list(_of_keys([change for stage in stages for change in stage.changes]))


class _Reader:
    """Reads messages under the schemas that they name."""

    def __init__(self, registry: InMemorySchemaRegistry) -> None:
        self._registry = registry
        self._parsed: dict[int, Any] = {}

    def read(self, framed: bytes) -> dict[str, Any]:
        schema_id, body = unframe(framed)
        if schema_id not in self._parsed:
            self._parsed[schema_id] = fastavro.parse_schema(self._registry.schema(schema_id))
        schema = self._parsed[schema_id]
        record: Any = fastavro.schemaless_reader(io.BytesIO(body), schema, schema)
        return record


def _of_stage(stage: PublishedStage, reader: _Reader) -> Iterator[str]:
    for one in stage.changes:
        change = reader.read(one.message.value)
        yield from _compared(one.committed, reader.read(one.message.key), change)
    for topic, schemas in stage.schemas.items():
        columns = Counter(name.lower() for name in row_columns(schemas.reader_schema))
        yield from (f"{topic} has two fields {name}" for name, n in columns.items() if n > 1)
        changes = [one for one in stage.changes if one.message.topic == topic]
        rows = [dict(zip(NAMES, one.row(n), strict=True)) for n, one in enumerate(changes)]
        decoded = decode_rows(rows, schemas, release=0)
        for one, row in zip(changes, decoded, strict=True):
            yield from _compared(one.committed, row["key"], row)


def _compared(committed: Committed, key: dict[str, Any], change: dict[str, Any]) -> Iterator[str]:
    place = f"{committed.table}, {committed.mod} at {committed.commit_us}"
    found = tuple(plain_key(plain(one)) for one in key.values())
    if found != committed.key:
        yield f"{place}: key {found!r:.200} and not {committed.key!r:.200}"
    if change["mod_type"] != committed.mod:
        yield f"{place}: {change['mod_type']}"
    for side in _SIDES:
        yield from _of_side(f"{place}, {side}", plain_change(change, side), committed, side)
    source = change["source"]
    found = plain(source["commit_timestamp"]), source["record_sequence"], source["mod_number"]
    meant = committed.commit_us, committed.sequence, committed.mod_number
    if found != meant:
        yield f"{place}: {found} and not {meant}"


def _of_side(
    place: str, found: dict[str, Any] | None, committed: Committed, side: str
) -> Iterator[str]:
    meant = getattr(committed, side)
    if found is None or meant is None:
        if found is not meant:
            yield f"{place}: {found!r:.200} and not {meant!r:.200}"
        return
    for name in sorted(found.keys() | meant.keys()):
        pair = found.get(name, "not captured"), meant.get(name, "not captured")
        if pair[0] != pair[1] and plain_key(pair[0]) != plain_key(pair[1]):
            yield f"{place}, {name}: {pair[0]!r:.200} and not {pair[1]!r:.200}"


def plain_change(change: dict[str, Any], side: str) -> dict[str, Any] | None:
    """Return the captured values of a decoded change before or after it, by name in lower case."""
    row, names = change[f"{side}_values"], change[f"{side}_columns"]
    if row is None:
        return None
    return {name.lower(): plain(row[name]) for name in (row if names is None else names)}


def _of_keys(changes: list[Published]) -> Iterator[str]:
    """Compare bytes of keys with rows: or changes of one row would be in different partitions."""
    rows: dict[Any, bytes] = {}
    keys: dict[Any, Any] = {}
    for change in changes:
        row = change.committed.table, change.committed.key
        key = change.message.topic, change.message.key
        if rows.setdefault(row, change.message.key) != change.message.key:
            yield f"{row!r:.200}: a row with two keys"
        if keys.setdefault(key, row) != row:
            yield f"{row!r:.200} and {keys[key]!r:.200}: two rows with one key"
