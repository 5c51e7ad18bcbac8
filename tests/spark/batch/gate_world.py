"""The batch function over hand-made rows in place of Kafka, and what survives its kills.

A recording sink stands for the tables.  After a kill everything in memory is created again, and
Spark starts the same batch with the same rows.
"""

from __future__ import annotations

import copy
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial

import structlog

from tests.spark.gate_rows import GATE_SCHEMA
from tests.topics import Change, Topic
from tidegate.lineage.subscription import Subscription
from tidegate.schemas.checksums import CHECKSUM_MODULUS, xxhash_64
from tidegate.schemas.errors import SchemaNotFound
from tidegate.schemas.progress import (
    ChecksumKind,
    ChildPartition,
    PartitionAnnounced,
    PartitionFinished,
    ProgressRecord,
    SlotProgress,
    StreamStarted,
    TokenSnapshot,
    TopicOffset,
    TopicTotals,
)
from tidegate.schemas.progress_codec import RECORD_SCHEMA, encode_key, encode_record
from tidegate.schemas.topics import TopicNames
from tidegate.schemas.wire_format import frame
from tidegate.spark_consumer.batch.bad_records import BadRecords, SchemaIds
from tidegate.spark_consumer.batch.batch import Batch
from tidegate.spark_consumer.batch.ports import Parts
from tidegate.spark_consumer.batch.progress_rows import ProgressReader
from tidegate.spark_consumer.batch.rows import HEADER_TYPE, HEADERS
from tidegate.spark_consumer.batch.segments import SegmentFiles
from tidegate.spark_consumer.batch.spark_rows import SparkRows
from tidegate.spark_consumer.checkpoint.gate_files import GateFiles
from tidegate.spark_consumer.checkpoint.schema_store import SchemaStore
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.core.file_names import SEGMENTS
from tidegate.spark_consumer.core.limits import Limits
from tidegate.spark_consumer.metrics import consumer_metrics
from tidegate.spark_consumer.sinks.manifest import read_manifest
from tidegate.spark_consumer.sinks.port import TableVersion

PROGRESS, ACCOUNTS, LEDGER = "bank-progress", "bank.accounts", "bank.ledger"
SUBSCRIPTION = Subscription(TopicNames("bank"))
PROGRESS_ID = 1


@dataclass
class Log:
    """Two data topics with one topic partition each, one slot, and the batches cut from them."""

    rows: list = field(default_factory=list)
    ends: dict = field(default_factory=dict)
    revision: int = 0
    sent: list = field(default_factory=list)
    headers: dict = field(default_factory=dict)
    """Headers of records without an order key, by topic and offset."""

    def __post_init__(self):
        columns = {"id": "INT64"}
        self.topics = {
            ACCOUNTS: Topic("accounts", {2: columns}, ["id"], key_id=100),
            LEDGER: Topic("ledger", {3: columns}, ["id"], key_id=101),
        }
        child = ChildPartition("t", ("",), 0)
        self.progress(StreamStarted("s", "g", 0, None, "bank-fleet", 1, "id", (), (child,)))
        self.progress(PartitionAnnounced(child, ""))

    def schema(self, schema_id):
        """Stands for the registry."""
        if schema_id == PROGRESS_ID:
            return copy.deepcopy(RECORD_SCHEMA)
        schemas = {}
        for topic in self.topics.values():
            schemas |= topic.schemas | {topic.key_id: topic.key_schema}
        if schema_id not in schemas:
            raise SchemaNotFound("the registry has no schema with this id", schema_id=schema_id)
        return schemas[schema_id]

    def _next(self, topic):
        offset = self.ends.get(topic, 0)
        self.ends[topic] = offset + 1
        return offset

    def progress(self, body, *, epoch="e"):
        value = frame(PROGRESS_ID, encode_record(ProgressRecord(epoch, "w", body)))
        key = frame(PROGRESS_ID, encode_key(body))
        row = (True, PROGRESS, 0, self._next(PROGRESS), bytearray(key), bytearray(value))
        self.rows.append((*row, None, None, None))

    def finish(self, token, *, end_us):
        """Write the marker of a stream partition over all changes so far, once each; `u` begins."""
        child = ChildPartition("u", (token,), end_us * 1_000)
        self.progress(PartitionAnnounced(child, token))
        found = {(row[1], bytes(row[6])): len(row[5]) for row in self.sent}
        totals = tuple(
            TopicTotals(
                topic,
                len(keys),
                len(keys),
                sum(found[topic, key] for key in keys),
                sum(map(xxhash_64, keys)) % CHECKSUM_MODULUS,
            )
            for topic in (ACCOUNTS, LEDGER)
            if (keys := [key for of, key in found if of == topic])
        )
        marker = PartitionFinished(token, ("",), 0, end_us * 1_000, (child,), totals)
        self.progress(replace(marker, checksums=ChecksumKind.XXHASH_64))

    def beat(self, watermark_us, *, token="t", **changes):
        self.revision += 1
        vector = tuple(TopicOffset(t, 0, e - 1) for t, e in self.ends.items() if t != PROGRESS)
        tokens = (TokenSnapshot(token, 0, (), (), watermark_us),)
        includes = self.ends[PROGRESS] - 1
        self.progress(SlotProgress(0, self.revision, 0, includes, vector, tokens), **changes)

    def change(
        self, commit_us, *, topic=ACCOUNTS, transaction="x", sequence=0, mod=0, copies=1, records=1
    ):
        change = Change(
            "INSERT", {"id": commit_us}, {}, us=commit_us,
            transaction=transaction, sequence=sequence, mod_number=mod, records=records,
            token="t",
        )  # fmt: skip
        for _ in range(copies):
            key, value = map(bytearray, self.topics[topic].framed(change))
            row = (False, topic, 0, self._next(topic), key, value)
            self.rows.append((*row, bytearray(change.order_key), "I", change.origin))
            self.sent.append(self.rows[-1])

    def foreign(self, value=b"{}", *, key=None, topic=ACCOUNTS, headers=(("trace", b"7"),)):
        """Write what another program could, without an order key."""
        offset = self._next(topic)
        self.headers[topic, offset] = [(name, bytearray(content)) for name, content in headers]
        key = None if key is None else bytearray(key)
        self.rows.append((False, topic, 0, offset, key, bytearray(value), None, None, None))

    def cut(self):
        """Return the batch since the last cut."""
        rows, self.rows = self.rows, []
        return Cut(rows, {topic: {0: end} for topic, end in self.ends.items()})


@dataclass
class Cut:
    rows: list
    ends: dict


class RecordingSink:
    """Keeps releases outside of the process, as a table would."""

    name = "changelog"

    def __init__(self, kept):
        self.kept = kept

    def open(self, *, query_id, release_max):
        pass

    def write(self, release):
        rows = []
        for topic, table in release.tables.items():
            found = table.frame.collect()
            assert len(found) == table.rows
            rows += [
                (bytes(row.order_key), row.ordinal, topic, row.offset, row.key["id"])
                for row in found
            ]
        assert len(rows) == release.rows
        rows.sort()
        before = self.kept.setdefault(release.number, rows)
        assert before == rows
        tables = {table.schemas.table for table in release.tables.values()}
        return {table: TableVersion(f"changelog/{table}", release.number) for table in tables}


class RecordingLate:
    def __init__(self, kept):
        self.kept = kept

    def write(self, rows, *, query_id, batch, watermark_us):
        found = sorted((bytes(row.order_key), row.offset) for row in rows.collect())
        self.kept[batch] = (watermark_us, found)
        return len(found)


class RecordingDeadLetters:
    def __init__(self, kept):
        self.kept = kept

    def write(self, rows, *, query_id, batch, release):
        names = ("topic", "topic_partition", "offset", "key", "value", "headers", "reason")
        found = sorted(
            tuple(_plain(row[name]) for name in names) for row in rows.select(*names).collect()
        )
        before = self.kept.setdefault(("batch", batch) if release is None else release, found)
        assert before == found
        return len(found)


def _plain(value):
    if isinstance(value, list):
        return [(one["key"], bytes(one["value"])) for one in value]
    return bytes(value) if isinstance(value, bytearray) else value


class GateWorld:
    """What survives a kill: folders, tables, and the batches that Spark would start again."""

    def __init__(self, spark, folder, **limits):
        self.spark, self.folder, self.limits = spark, folder, Limits(**limits)
        self.collects = True
        self.records_mismatches = self.sets_aside = False
        self.released, self.late, self.dead_letters, self.cuts = {}, {}, {}, []
        self.make_sink = lambda: RecordingSink(self.released)
        self.further = ()
        self.maintain = None
        self.make_sinks = lambda _output: (self.make_sink(),)
        self.make_late = lambda _output: RecordingLate(self.late)
        self.make_dead_letters = lambda _output: RecordingDeadLetters(self.dead_letters)
        self.log = Log()

    def start(self, on_effect=lambda: None, code="1", registry=None, gate=None):
        gate = gate or Storage(self.spark, str(self.folder / "gate"))
        writer = gate.writers.number or gate.take()
        output = Storage(self.spark, str(self.folder / "output"), guard=gate)
        sinks, late = self.make_sinks(output), self.make_late(output)
        dead_letters = self.make_dead_letters(output)
        segments = SegmentFiles(self.spark, gate.path(SEGMENTS))
        for one, names in (
            (gate, ["write_json", "create_json", "delete"]),
            (output, ["write_json"]),
            *((sink, ["write"]) for sink in sinks),
            (late, ["write"]),
            (dead_letters, ["write"]),
            (segments, ["store", "join"]),
        ):
            for name in names:
                setattr(one, name, partial(_watched, getattr(one, name), on_effect))
        schemas = SchemaStore(gate, registry or self.log)
        bad = BadRecords(
            ids=SchemaIds(schemas.schema, sets_aside=self.sets_aside),
            table=dead_letters,
            sets_aside=self.sets_aside,
        )
        progress = ProgressReader(schemas.schema)
        parts = Parts(
            files=GateFiles(gate),
            schemas=schemas,
            sinks=(*sinks, *self.further),
            output=output,
            subscription=SUBSCRIPTION,
            query_id="q",
            limits=self.limits,
            code=code,
            topic_ids=dict.fromkeys,
            writer=writer,
            records_mismatches=self.records_mismatches,
        )
        return Batch(
            parts,
            rows_of=lambda frame: closing(
                SparkRows(
                    frame,
                    segments=segments,
                    progress=progress,
                    late=late,
                    collects=self.collects,
                    limits=self.limits,
                    bad=bad,
                )
            ),
            end_offsets=lambda batch: self.cuts[batch].ends,
            log=structlog.get_logger(),
            metrics=consumer_metrics(),
            maintain=self.maintain,
        )

    def cut(self):
        self.cuts.append(self.log.cut())
        return len(self.cuts) - 1

    def ask(self, batch, number):
        headers = self.log.headers
        rows = [(*row, headers.get((row[1], row[3]))) for row in self.cuts[number].rows]
        schema = f"{GATE_SCHEMA}, {HEADERS} {HEADER_TYPE}"
        batch(self.spark.createDataFrame(rows, schema), number)

    def run(self, batch):
        states = []
        batch.finished = states.append
        self.ask(batch, self.cut())
        return states[0]

    def order_us(self, release):
        return [int.from_bytes(key[:8], "big") for key, *_ in self.released[release]]

    def manifest(self, release):
        return read_manifest(Storage(self.spark, str(self.folder / "output")), release)

    def files(self, kind):
        return sorted(
            path.name for path in (self.folder / "gate" / kind).glob("[!.]*") if path.exists()
        )


def _watched(effect, on_effect, *arguments, **named):
    result = effect(*arguments, **named)
    on_effect()
    return result
