"""One stream partition of Datastream's files, without Kafka: what a worker's core makes of it.

The production reading and the production core, with commits and deaths where a test wants them.  A
death loses what was not committed, as that of a worker does; another one goes on from the snapshot.
"""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

from tests.datastream_folder import MemoryFiles
from tidegate.producer.core.stream_partition import StreamPartition
from tidegate.producer.datastream.event_translator import EventTranslator
from tidegate.producer.datastream.file_ledger import SourceLimits
from tidegate.producer.datastream.objects_query import object_token
from tidegate.producer.datastream.stream import DatastreamFiles
from tidegate.producer.datastream.table_settings import TableSettings
from tidegate.producer.messages import ChangeMessage, PublishableRecord
from tidegate.producer.records import DataChangeRecord
from tidegate.schemas.order_key import OrderKey, sequence_pair
from tidegate.schemas.progress import ChildPartition


class ModelClock:
    """A clock that a test sets, and whose wall time it may set back."""

    def __init__(self, now_us):
        self.now_us = now_us
        self.back_us = 0

    def wall_us(self):
        return self.now_us - self.back_us

    def monotonic_us(self):
        return self.now_us

    def sleep(self, seconds):
        self.now_us += int(seconds * 1_000_000)


class _Signal:
    def notify(self):
        """Nobody waits."""


class PlainTranslator:
    """Makes a message of each change; what it holds is the record itself, for checks."""

    def translate_now(self, record, *, token):
        return self.translate(record, token=token)

    def translate(self, record, *, token):
        (mod,) = record.mods
        key = OrderKey(
            record.commit_timestamp_ns // 1_000, record.server_transaction_id,
            sequence_pair(record.record_sequence), 0,
        )  # fmt: skip
        message = ChangeMessage(
            record.table_name, repr(sorted(mod.keys.items())).encode(), record, key.encode(),
            record.mod_type[:1].encode(), b"",
        )  # fmt: skip
        return PublishableRecord(0, "", "", (message,))


class ObjectModel:
    """The stream partition of one object; `published` is what is committed, in order."""

    def __init__(
        self, *, now_us, start_us=0, folder="root/shop_orders", limits=None, parks=True,
        poll_ms=10_000, files=None, source=DatastreamFiles, tables=None,
    ):  # fmt: skip
        self.files = files or MemoryFiles()
        self.clock = ModelClock(now_us)
        root, _, name = folder.partition("/")
        self.source = source(
            self.files, root, SimpleNamespace(signal=_Signal), self.clock,
            limits=limits or SourceLimits(), poll_ms=poll_ms, parks=parks,
            tables=tables or TableSettings(),
        )  # fmt: skip
        self.translator = EventTranslator(
            PlainTranslator(), parks=parks, columns_of=lambda _table: ()
        )
        child = ChildPartition(object_token(start_us // 60_000_000, name), (), start_us * 1_000)
        self.partition = StreamPartition(child)
        self.committed = self.partition.snapshot()
        self.published = []
        """(message, watermark before its commit) of each event."""
        self.dead_letters = []
        self.filtered = 0
        self.counts = Counter()
        """Counts of all queries, those that died included."""
        self.query = None
        self._queries = 0

    def step(self):
        """Let the query do what is due; return whether it did something."""
        partition = self.partition
        if self.query is None:
            self._queries += 1
            partition.queue_query()
            start_ns = partition.start_query(self._queries)
            resumed = self.source.resumed(partition.read.resumption)
            self.query = resumed.query(
                token=partition.child.token, start_ns=start_ns, end_ns=None, heartbeat_ms=1_000
            )
        if self.query._failure is not None:
            raise self.query._failure
        items, until_us = self.query.step()
        token = partition.child.token
        translated = [
            self.translator.translate(item, token=token)
            if isinstance(item, DataChangeRecord)
            else item
            for item in items
        ]
        partition.add_items(translated, len(items))
        partition.check_invariants()
        return bool(items) or until_us <= self.clock.monotonic_us()

    def run(self):
        """Read until there is nothing to do, and commit."""
        while self.step():
            pass
        self.commit()

    def rows(self):
        """Return the rows that were published, with the columns that are added."""
        mods = [message.value.mods[0] for message, _ in self.published]
        return [{**mod.new_values, **mod.old_values} for mod in mods]

    def uuids(self):
        """Return the uuids of the events that were published."""
        return [row["_datastream_uuid"] for row in self.rows()]

    def commit(self):
        """Publish what was read."""
        publication = self.partition.publication()
        before_us = self.committed.watermark_us
        for record in publication.records:
            self.published += [(message, before_us) for message in record.messages]
            self.dead_letters += record.parked
            self.filtered += record.filtered
        self.partition.confirm(publication)
        self.committed = self.partition.snapshot()

    def die(self):
        """Lose what was not committed; another worker takes over."""
        if self.query is not None:
            self.counts += self.query._reading.counts
            self.query.cancel()
        self.query = None
        self.partition = StreamPartition.restore(self.committed)
