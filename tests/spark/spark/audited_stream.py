"""A stream's output and its progress topic, made by hand from the same changes."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import deltalake
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from tests.topics import ROWS_SCHEMA, Change, Topic
from tidegate.schemas.checksums import CHECKSUM_MODULUS, CHECKSUMS, origin_of
from tidegate.schemas.progress import (
    ChecksumKind,
    ChildPartition,
    PartitionAnnounced,
    PartitionFinished,
    PartitionGap,
    ProgressRecord,
    StreamStarted,
    TopicTotals,
)
from tidegate.schemas.progress_codec import RECORD_SCHEMAS, encode_key, encode_record
from tidegate.schemas.topics import TopicNames
from tidegate.schemas.wire_format import frame
from tidegate.spark_consumer.sinks.change_types import change_type
from tidegate.spark_consumer.sinks.manifest import Manifest
from tidegate.spark_consumer.sinks.port import TableVersion
from tidegate.spark_consumer.sinks.row_decoding import decode_rows
from tidegate.spark_consumer.spark import auditing

__all__ = ["SECOND", "AuditedStream", "name_of", "origin_number", "record", "started"]

SECOND = 1_000_000

_COLUMNS = {1: {"id": "INT64", "a": "STRING(MAX)"}}
_PROGRESS = "offset long, key binary, value binary"
_ROW = [field.split()[0] for field in ROWS_SCHEMA.split(", ")]


class AuditedStream:
    """A stream's output and its progress topic, both made by hand from the same changes."""

    def __init__(self, spark, folder, *, lacks=None):
        """Take an empty folder; `lacks` are the columns that tables of older programs lack."""
        self.spark = spark
        self.folder = Path(folder)
        self.topics = {name: Topic(name, _COLUMNS, ["id"]) for name in ("a", "b", "old")}
        self.lacks = lacks or {}
        self.sent = defaultdict(list)
        self.records = [record(started())]
        self.release = -1

    def send(self, token, table, us, *, mods=1, records=1, transaction=None, **fields):
        """A transaction of one stream partition, with `mods` changes in each of its records."""
        for sequence in range(records):
            for number in range(mods):
                change = Change(
                    "INSERT", {"id": len(self.sent[token])}, {"a": "x" * number}, us=us,
                    transaction=transaction or f"t{us}", sequence=sequence, mod_number=number,
                    token=token, records=records, **fields,
                )  # fmt: skip
                self.sent[token].append((self.topics[table], change))

    def write(self):
        """Release everything of one second, as the gate does."""
        self.release += 1
        after_us, through_us = self.release * SECOND, (self.release + 1) * SECOND
        due = [
            (topic, change)
            for changes in self.sent.values()
            for topic, change in changes
            if after_us < change.us <= through_us
        ]
        due.sort(key=lambda pair: pair[1].order_key)
        tables = {}
        for name, topic in self.topics.items():
            rows = [
                dict(zip(_ROW, topic.row(change, ordinal=ordinal), strict=True))
                for ordinal, (of, change) in enumerate(due)
                if of is topic
            ]
            schemas = topic.topic_schemas()
            decoded = decode_rows(rows, schemas, release=self.release)
            found = pa.Table.from_pylist(decoded, schema=_arrow(schemas))
            found = found.drop_columns(list(self.lacks.get(name, ())))
            deltalake.write_deltalake(self.path(name), found, mode="append")
            tables[name] = {"changelog": TableVersion(f"changelog/{name}", self.release)}
        bounds = (self.release, "query-1", self.release, after_us, through_us)
        manifest = Manifest(*bounds, len(due), tables)
        self._manifest(self.release).parent.mkdir(exist_ok=True)
        self._manifest(self.release).write_text(json.dumps(manifest.content()))

    def path(self, name):
        return str(self.folder / "changelog" / name)

    def alter(self, name, change):
        """Replace the rows of a table by what a function makes of them."""
        table = deltalake.DeltaTable(self.path(name)).to_pyarrow_table()
        altered = pa.Table.from_pylist(change(table.to_pylist()), schema=table.schema)
        deltalake.write_deltalake(self.path(name), altered, mode="overwrite")

    def _manifest(self, release):
        return self.folder / "_releases" / f"{release:012d}.json"

    def change_manifest(self, release, **changed):
        """Change a manifest; with nothing to change, delete it."""
        file = self._manifest(release)
        content = json.loads(file.read_text()) | changed
        file.unlink()
        if changed:
            file.write_text(json.dumps(content))

    def announce(self, *tokens, start_us=0, version=2):
        for token in tokens:
            child = ChildPartition(token, (), start_us * 1_000 + 7)
            self.records.append(record(PartitionAnnounced(child, ""), version=version))

    def finish(self, token, *, end_us, start_us=0, version=2, chunks=1, **fields):
        """Write the marker that the producer would: the totals of everything that was sent."""
        kind = ChecksumKind.XXHASH_64 if version == 2 else ChecksumKind.BLAKE2B_64
        totals = defaultdict(lambda: [0, 0, 0])
        for topic, change in self.sent[token]:
            summed = totals[topic.topic]
            summed[0] += 1
            summed[1] += len(topic.framed(change)[1])
            summed[2] = (summed[2] + CHECKSUMS[kind](change.order_key)) % CHECKSUM_MODULUS
        sums = [TopicTotals(topic, 1, *figures) for topic, figures in sorted(totals.items())]
        for chunk in range(chunks):
            share = tuple(sums) if chunks == 1 else tuple(sums[chunk - 1 : chunk] if chunk else ())
            body = PartitionFinished(
                token, (), start_us * 1_000 + 7, end_us * 1_000, (), share, chunk=chunk,
                chunks=chunks, checksums=kind, **fields,
            )  # fmt: skip
            self.records.append(record(body, version=version))

    def accept(self, token, from_us, until_us):
        """Write the record of an accepted gap."""
        gap = PartitionGap(token, from_us, until_us, "ops", until_us)
        self.records.append(record(gap, version=3))
        return gap

    def progress(self):
        rows = [(offset, *one) for offset, one in enumerate(self.records)]
        return self.spark.createDataFrame(rows, _PROGRESS)

    def audit(self, *, has_dead_letters=False):
        return auditing.audit_output(
            self.spark,
            str(self.folder),
            checkpoint=f"{self.folder}/check",
            names=TopicNames("bank"),
            progress=self.progress,
            schema_of=RECORD_SCHEMAS.__getitem__,
            has_dead_letters=has_dead_letters,
            step=lambda _: None,
        )


def _arrow(schemas):
    return to_arrow_schema(change_type(schemas))


def started(**fields):
    common = ("projects/p/instances/i/databases/d/changeStreams/s", "GOOGLE_STANDARD_SQL", 0, None)
    return StreamStarted(*common, "bank-fleet", 2, "id", (), (), **fields)


def record(body, *, epoch="e", version=2):
    """Key and value of a progress record; a version is the id of its schema here."""
    key = frame(50 + version, encode_key(body, version))
    value = frame(version, encode_record(ProgressRecord(epoch, "w", body, version)))
    return bytearray(key), bytearray(value)


def origin_number(token):
    return int.from_bytes(origin_of(token), "big", signed=True)


def name_of(mismatch):
    """What a mismatch names: (topic and token), a transaction, a release or a topic."""
    subject = mismatch.subject
    if mismatch.what == "stream partition":
        return subject["topic"], subject["token"], mismatch.fault
    names = {"transaction": "server_transaction_id", "release": "release", "table": "topic"}
    return subject[names[mismatch.what]], mismatch.fault
