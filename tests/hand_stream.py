"""A stream that is written to a real Kafka by hand: two tables, one stream partition, one slot.

The same calls give the same records at the same offsets, on any broker, since nothing of it comes
from a clock and no transaction takes an offset.
"""

from __future__ import annotations

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.topics import Change, Topic
from tidegate.schemas.change_schema import key_schema, value_schema
from tidegate.schemas.checksums import CHECKSUM_MODULUS, origin_of, xxhash_64
from tidegate.schemas.errors import SchemaError
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

COLUMNS = {"id": "INT64", "t": "STRING"}
PATIENCE_S = 60


class Ids:
    """Stands for a registry: ids in the order in which schemas are registered."""

    def __init__(self):
        self.schemas = {}

    def register(self, _subject, schema):
        schema_id = len(self.schemas) + 1
        self.schemas[schema_id] = schema
        return schema_id

    def schema(self, schema_id):
        if schema_id not in self.schemas:
            raise SchemaError("the registry has no schema with this id", schema_id=schema_id)
        return self.schemas[schema_id]


class HandStream:
    """Collects records in order; `send` writes those that were not sent yet."""

    def __init__(self, prefix, register, *, tables=("accounts", "ledger")):
        self.names = TopicNames(prefix)
        self.progress_id = register(f"{self.names.progress}-value", RECORD_SCHEMA)
        self.tables = {name: self._table(name, prefix, register) for name in tables}
        self.records, self.sent, self.ends, self.revision = [], 0, {}, 0
        self.changes = []
        """Table, order key and value's size of each change, in the order of its record."""
        child = ChildPartition("t", ("",), 0)
        self.progress(StreamStarted("s", "g", 0, None, f"{prefix}-fleet", 1, "id", (), (child,)))
        self.progress(PartitionAnnounced(child, ""))

    def _table(self, name, prefix, register):
        # The ids are known once the schemas are, and a `Topic` is made with its ids.
        draft = Topic(name, {2: COLUMNS}, ["id"], prefix=prefix)
        table = draft.tables[2]
        key_id = register(f"{draft.topic}-key", key_schema(draft.topic, table))
        value_id = register(f"{draft.topic}-value", value_schema(draft.topic, table))
        return Topic(name, {value_id: COLUMNS}, ["id"], key_id=key_id, prefix=prefix)

    def write(self, topic, key, value, headers=()):
        """Write any record; returns its offset."""
        offset = self.ends.get(topic, 0)
        self.ends[topic] = offset + 1
        self.records.append((topic, key, value, list(headers)))
        return offset

    def progress(self, body, *, epoch="e"):
        value = frame(self.progress_id, encode_record(ProgressRecord(epoch, "w", body)))
        return self.write(self.names.progress, frame(self.progress_id, encode_key(body)), value)

    def change(self, commit_us, *, table="accounts", key=None, mod="INSERT", text="", spoil=None):
        """Write a change of a transaction of its own; `spoil` alters its value."""
        one = self.tables[table]
        row = {"id": commit_us if key is None else key}
        new = None if mod == "DELETE" else {**row, "t": text}
        change = Change(mod, row, new, us=commit_us, transaction=f"x{commit_us}", token="t")
        framed_key, value = one.framed(change)
        self.changes.append((table, change.order_key, len(value)))
        headers = [
            ("order", change.order_key), ("mod", mod[:1].encode()), ("origin", origin_of("t")),
        ]  # fmt: skip
        value = value if spoil is None else spoil(value)
        return self.write(one.topic, framed_key, value, headers)

    def beat(self, watermark_us, *, token="t"):
        self.revision += 1
        data = [topic.topic for topic in self.tables.values()]
        vector = tuple(TopicOffset(t, 0, self.ends[t] - 1) for t in data if t in self.ends)
        tokens = (TokenSnapshot(token, 0, (), (), watermark_us),)
        includes = self.ends[self.names.progress] - 1
        self.progress(SlotProgress(0, self.revision, 0, includes, vector, tokens))

    def finish(self, *, end_us):
        """Write the marker of the stream partition over all changes so far; `u` begins."""
        child = ChildPartition("u", ("t",), end_us * 1_000)
        self.progress(PartitionAnnounced(child, "t"))
        totals = []
        for name, one in self.tables.items():
            found = {key: size for table, key, size in self.changes if table == name}
            checksum = sum(map(xxhash_64, found)) % CHECKSUM_MODULUS
            if found:
                figures = (len(found), len(found), sum(found.values()), checksum)
                totals.append(TopicTotals(one.topic, *figures))
        marker = PartitionFinished(
            "t", ("",), 0, end_us * 1_000, (child,), tuple(totals),
            checksums=ChecksumKind.XXHASH_64,
        )  # fmt: skip
        self.progress(marker)

    @property
    def topics(self):
        return [self.names.progress, *(table.topic for table in self.tables.values())]

    def create(self, bootstrap_servers):
        admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        for future in admin.create_topics([NewTopic(t, 1, 1) for t in self.topics]).values():
            future.result(PATIENCE_S)

    def send(self, bootstrap_servers):
        producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True})
        for topic, key, value, headers in self.records[self.sent :]:
            producer.produce(topic, key=key, value=value, headers=headers, partition=0)
        assert producer.flush(PATIENCE_S) == 0
        self.sent = len(self.records)
