"""What a run left behind, as the checkers read it: from the commit log, Kafka, checkpoint, Delta.

Keys are brought to one form (the primary key's values as JSON), so that the commit log's, Kafka's
and Delta's can be compared.  What cannot be known from outside stays empty: who owned what when a
fence passed.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa

from tests.chaos.committed_messages import committed_messages
from tests.simulation.history import (
    Claim,
    Committed,
    Finish,
    History,
    LineageFact,
    Mirror,
    Published,
    QueryStart,
    Released,
    SlotEntry,
)
from tidegate.local_stack.judge.delta import (
    ChangelogTable,
    DeltaReader,
    ReleaseManifest,
    read_delta,
)
from tidegate.local_stack.judge.log import LoggedTransaction, Place, origin_number
from tidegate.local_stack.judge.source import SourceTable
from tidegate.local_stack.judge.values import canonical, canonical_json, rfc3339_us
from tidegate.program.registry_http import HttpSchemaRegistry
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.order_key import OrderKey
from tidegate.schemas.progress import PartitionFinished
from tidegate.schemas.progress_decoder import ProgressDecoder
from tidegate.schemas.topics import HEADER_ORDER, HEADER_ORIGIN, TopicNames
from tidegate.schemas.wire_format import unframe

_MODS = {"INSERT": "I", "UPDATE": "U", "DELETE": "D"}


@dataclass(slots=True)
class PlanRecorder:
    """Keeps every plan that a checkpoint ever held: a plan that changes is a batch decided twice.

    `look` is to be called again and again while the consumer runs, as old plans are deleted.
    """

    checkpoint: Path
    claims: list[Claim] = field(default_factory=list)
    _texts: dict[int, bytes] = field(default_factory=dict)
    _attempts: dict[int, int] = field(default_factory=dict)

    def look(self) -> None:
        """Take note of plans that are new."""
        folder = self.checkpoint / "gate" / "plans"
        plans = folder.glob("[!.]*.json") if folder.is_dir() else ()
        for batch, path in sorted((int(path.stem), path) for path in plans):
            try:
                text = path.read_bytes()
            except FileNotFoundError:
                continue
            if self._texts.get(batch) == text:
                continue
            self._texts[batch] = text
            attempt = self._attempts[batch] = self._attempts.get(batch, -1) + 1
            plan = json.loads(text)
            read = {
                topic: {int(number): int(end) for number, end in ends.items()}
                for topic, ends in plan["end_offsets"].items()
            }
            self.claims.append(Claim(batch, attempt, int(plan["through_us"]), read))


@dataclass(frozen=True, slots=True)
class Found:
    """The history, and what the demo's judge reads of the same output."""

    history: History
    changelogs: list[ChangelogTable]
    manifests: list[ReleaseManifest]


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where to look."""

    bootstrap_servers: str
    registry_url: str
    prefix: str
    output: Path
    worker_logs: Sequence[tuple[str, Path]]
    """Each worker process's label and log."""


def collect(
    places: Places,
    *,
    history: History,
    transactions: Sequence[LoggedTransaction],
    layout: Mapping[str, SourceTable],
) -> Found:
    """Fill a history that knows claims, lineage and what did not heal with everything else."""
    names = TopicNames(places.prefix)
    keys = {table: source.key for table, source in layout.items()}
    history.progress_topic = names.progress
    _collect_kafka(places, names=names, keys=keys, history=history)
    reader = DeltaReader(places.output)
    manifests = reader.manifests()
    changelogs = [reader.changelog(table) for table in reader.changelog_tables()]
    types = {changelog.table: changelog.types for changelog in changelogs}
    origins = {
        _order_key(row.place): row.origin for changelog in changelogs for row in changelog.rows
    }
    history.committed += _committed(
        transactions, names=names, keys=keys, types=types, origins=origins
    )
    for label, log in places.worker_logs:
        history.queries += queries_in(log, worker=label)
    history.queries.sort(key=lambda query: query.at)
    _collect_releases(places.output, changelogs, manifests=manifests, history=history)
    _collect_late(places.output / "late", history=history)
    if manifests:
        history.mirrors.append(_mirror(reader, manifests, names=names, keys=keys))
    return Found(history, changelogs, manifests)


def lineage_facts(
    born: Mapping[str, Mapping[str, Any]],
    children: Mapping[str, tuple[str, ...]],
    *,
    start_us: int,
) -> dict[str, LineageFact]:
    """Return what the simulator said of all stream partitions; none is read before `start_us`."""
    starts = {token: int(one["start_timestamp_us"]) for token, one in born.items()}
    return {
        token: LineageFact(
            token=token,
            parents=tuple(one["parents"]),
            start_us=max(starts[token], start_us),
            end_us=starts[children[token][0]] if token in children else None,
            children=children.get(token, ()),
        )
        for token, one in born.items()
    }


def queries_in(log: Path, *, worker: str) -> Iterator[QueryStart]:
    """Yield the queries that a worker's log says it began; their places are microseconds.

    A finish has the time at which its marker was written, which is before it was committed: a
    query between the two would pass, none that is right fails.
    """
    for line in log.read_bytes().splitlines() if log.exists() else ():
        if b'"query"' not in line:
            continue
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if entry.get("event") == "query":
            at_us = rfc3339_us(entry["timestamp"])
            yield QueryStart(at_us, worker, entry["token"], entry["start_ns"] // 1_000)


# ---------------------------------------------------------------- the commit log


def _committed(
    transactions: Sequence[LoggedTransaction],
    *,
    names: TopicNames,
    keys: Mapping[str, Sequence[str]],
    types: Mapping[str, Mapping[str, pa.DataType]],
    origins: Mapping[bytes, int],
) -> Iterator[Committed]:
    """Yield the changes, each with the token that its row in the output names by its hash.

    The log knows the tokens of a transaction, but not which change went where.  Where two of them
    have the same hash, it cannot be known.
    """
    for transaction in transactions:
        for change in transaction.changes:
            order_key = _order_key(change.place)
            named = [
                token
                for token in transaction.stream_partition_tokens
                if origin_number(token) == origins.get(order_key)
            ]
            kinds = types.get(change.table, {})
            row = {
                name: canonical_json(value, kinds.get(name, pa.string()))
                for name, value in {**change.keys, **change.new_values}.items()
            }
            yield Committed(
                order_key=order_key,
                commit_timestamp_us=transaction.commit_timestamp_us,
                transaction=transaction.server_transaction_id,
                topic=names.data(change.table),
                key=_key([row[name] for name in keys[change.table]]),
                token=named[0] if len(named) == 1 else None,
                mod=_MODS[change.mod_type],
                columns=row,
            )


def _order_key(place: Place) -> bytes:
    return OrderKey(
        place.commit_timestamp_us,
        place.server_transaction_id,
        place.record_sequence,
        place.mod_number,
    ).encode()


def _key(values: Sequence[Any]) -> bytes:
    return json.dumps([str(value) for value in values]).encode()


# ---------------------------------------------------------------- Kafka


def _collect_kafka(
    places: Places, *, names: TopicNames, keys: Mapping[str, Sequence[str]], history: History
) -> None:
    registry = HttpSchemaRegistry(places.registry_url)
    schemas: dict[int, Any] = {}
    key_ids: dict[str, set[int]] = {}

    def key_of(topic: str, framed: bytes) -> bytes:
        schema_id, body = unframe(framed)
        if schema_id not in schemas:
            schemas[schema_id] = fastavro.parse_schema(dict(registry.schema(schema_id)))
        key_ids.setdefault(topic, set()).add(schema_id)
        row: Any = fastavro.schemaless_reader(io.BytesIO(body), schemas[schema_id], None)
        return _key([canonical(row[name]) for name in keys[names.table(topic) or ""]])

    data = {names.data(table) for table in keys}
    decoder = ProgressDecoder(registry.schema)
    for message in committed_messages(places.bootstrap_servers, [names.progress, *sorted(data)]):
        topic, number, offset = message.topic(), message.partition(), message.offset()
        where = f"{topic}/{number}@{offset}"
        value = message.value()
        if value is None:
            continue
        try:
            if topic == names.progress:
                record = decoder.decode(value)
                history.progress.append(SlotEntry(number, offset, record))
                if isinstance(record.body, PartitionFinished) and not record.body.chunk:
                    _, written_ms = message.timestamp()
                    at_us = written_ms * 1_000
                    history.finishes.append(Finish(at_us, record.worker, record.body.token))
                continue
            headers = message.headers() or [("", b"")]
            header, order_key = headers[0]
            if header != HEADER_ORDER:
                history.broken.append(f"{where}: the first header is {header!r}")
                continue
            key = key_of(topic, message.key() or b"")
            origin = dict(headers).get(HEADER_ORIGIN, b"")
            history.published.append(
                Published(topic, number, offset, order_key, key, origin=origin)
            )
        except SchemaError as error:
            history.broken.append(f"{where}: {error}")
    history.progress.sort(key=lambda entry: (entry.slot, entry.offset))
    for topic, ids in key_ids.items():
        if len(ids) > 1:
            history.broken.append(f"{topic}: keys of several schemas: {sorted(ids)}")


# ---------------------------------------------------------------- Delta


def _collect_releases(
    output: Path,
    changelogs: Sequence[ChangelogTable],
    *,
    manifests: Sequence[ReleaseManifest],
    history: History,
) -> None:
    """Add every release with its rows by ordinal, over all tables; none may lack its manifest."""
    rows: dict[int, list[tuple[int, bytes]]] = {}
    for changelog in changelogs:
        for row in changelog.rows:
            rows.setdefault(row.release, []).append((row.ordinal, _order_key(row.place)))
    history.released += [
        Released(
            number=manifest.number,
            batch=_batch_of(output, manifest.number),
            after_us=manifest.after_us,
            through_us=manifest.through_us,
            order_keys=tuple(key for _, key in sorted(rows.pop(manifest.number, []))),
        )
        for manifest in manifests
    ]
    history.broken += [f"release {number} has rows and no manifest" for number in sorted(rows)]


def _batch_of(output: Path, release: int) -> int:
    return int(json.loads((output / "_releases" / f"{release:012d}.json").read_bytes())["batch"])


def _collect_late(path: Path, *, history: History) -> None:
    if (path / "_delta_log").is_dir():
        history.late += [bytes(key) for key in read_delta(path)["order_key"].to_pylist()]


def _mirror(
    reader: DeltaReader,
    manifests: Sequence[ReleaseManifest],
    *,
    names: TopicNames,
    keys: Mapping[str, Sequence[str]],
) -> Mirror:
    """Return all mirrors at the versions that the newest manifest names."""
    rows: dict[tuple[str, bytes], dict[str, object]] = {}
    newest, stands_at = manifests[-1], manifests[-1].number
    for table, entry in newest.tables.items():
        if entry.mirror_version is None:
            continue
        stands_at = newest.number if entry.mirror_release is None else entry.mirror_release
        columns = reader.mirror(table, version=entry.mirror_version)
        for values in zip(*columns.values(), strict=True):
            row = dict(zip(columns, values, strict=True))
            rows[names.data(table), _key([row[name] for name in keys[table]])] = row
    (cut,) = (one for one in manifests if one.number == stands_at)
    return Mirror(cut.through_us, rows)
