"""The data topics of later tables: found, recorded in the progress topic, agreed on by all workers.

`StreamStarted` names the topics of the tables that were there when the stream began.  A later one
is fixed by a `TableAdded` in the root's slot, which every worker reads.  A worker publishes nothing
to such a topic before it has *read* the record, which may be another worker's: so none places a
record by a number of topic partitions that the slot does not hold.

    FOUND -> (nobody's record is in the slot: written with the next transaction) -> RECORDED

A redrive, beside which no worker publishes, writes the record in its own transaction.

Any worker may write the record: the owner of the root's slot need not live.  Two that find a table
at the same moment both write it, and the first record read counts.  One that differs from it, or
from what this worker has found, is final: somebody has changed the topic in between.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core.stream_identity import StreamIdentity
from tidegate.producer.core.topic_watch import TopicWatch
from tidegate.producer.errors import TopicsChangedError
from tidegate.producer.messages import PublishableRecord
from tidegate.schemas.progress import DataTopic, ProgressRecord, StreamStarted, TableAdded


class AddedTables:
    """What one worker knows of the stream's data topics.

    `version` is that of the progress records which the worker writes: under version 1 it records no
    table, and waits only until it has read what others have recorded.
    """

    def __init__(self, identity: StreamIdentity, *, version: int) -> None:
        """Start with what the worker found at its start, and an unknown epoch."""
        self._watch = TopicWatch(identity)
        self._is_recorded_here = version > 1
        self._found = {topic.topic: topic for topic in identity.topics}
        self._recorded: dict[str, DataTopic] = {}
        self._written: set[str] = set()
        """Committed by this worker and not read yet."""
        self._epoch: str | None = None
        self._early: list[ProgressRecord] = []
        """Read before the epoch was known."""
        self.is_at_end = False
        """Whether the root's slot was read to its end once."""
        self.unrecorded: frozenset[str] = frozenset()
        """Topics to which nothing may be published yet."""

    # ------------------------------------------------------------ events

    def handle(self, event: on.TopicEvent, *, now_us: int) -> list[do.Effect]:
        """Take what was seen of the topics; return what follows, such as a stop."""
        match event:
            case on.TopicsObserved():
                changed = self._watch.handle(event, now_us=now_us)
                return [] if changed is None else [do.Stop(changed)]
            case on.TableFound():
                return self._find(event.topic)
            case on.RootSlotRead():
                self.is_at_end |= event.is_at_end
                self._early += event.records
                return self._read_early()

    def open(self, record: ProgressRecord) -> list[do.Effect]:
        """Take the record that opened the epoch; return what follows from what was read before."""
        effects: list[do.Effect] = []
        if isinstance(record.body, StreamStarted):
            self._epoch = record.epoch
            self._recorded |= {topic.topic: topic for topic in record.body.topics}
            for topic in record.body.topics:  # also of tables that were dropped since
                effects += self._watch_topic(topic)
        return effects + self._read_early()

    def _find(self, topic: DataTopic) -> list[do.Effect]:
        found = self._found.setdefault(topic.topic, topic)
        recorded = self._recorded.get(topic.topic, found)
        self._update()
        for other in (found, recorded):
            if other != topic:
                return [do.Stop(_differs(other, topic))]
        return self._watch_topic(topic)

    def _read_early(self) -> list[do.Effect]:
        if self._epoch is None:
            return []
        records, self._early = self._early, []
        effects: list[do.Effect] = []
        for record in records:
            if record.epoch == self._epoch and isinstance(record.body, TableAdded):
                effects += self._record(record.body.topic)
        self._update()
        return effects

    def _record(self, topic: DataTopic) -> list[do.Effect]:
        first = self._recorded.setdefault(topic.topic, topic)
        self._written.discard(topic.topic)
        if first != topic:
            return [do.Stop(_differs(first, topic, "another record says"))]
        found = self._found.get(topic.topic, topic)
        if found != topic:
            return [do.Stop(_differs(topic, found))]
        return self._watch_topic(topic)

    def _watch_topic(self, topic: DataTopic) -> list[do.Effect]:
        return [do.WatchTopic(topic.topic)] if self._watch.add(topic) else []

    def _update(self) -> None:
        if self._epoch is None:
            return
        waits = self._is_recorded_here or not self.is_at_end
        self.unrecorded = frozenset(self._found.keys() - self._recorded.keys() if waits else ())

    # ------------------------------------------------------------ publishing

    def waited_for(self, records: Iterable[PublishableRecord]) -> set[str]:
        """Return the topics of records to which nothing may be published yet.

        Also of changes that are parked: somebody will put them back into their topics.
        """
        topics: set[str] = set()
        for record in records:
            topics.update(message.topic for message in record.messages)
            topics.update(change.topic for change in record.parked)
        return topics & self.unrecorded

    def due(self, topics: Iterable[str]) -> list[TableAdded]:
        """Return the records that have to be written for topics that records wait for."""
        if not self.is_at_end:
            return []  # the record may be in what was not read yet
        wanted = self.unrecorded.intersection(topics) - self._written
        return [TableAdded(self._found[topic]) for topic in sorted(wanted)]

    def confirm(self, tables: Iterable[TableAdded]) -> None:
        """Take records for committed: they will be read."""
        self._written |= {table.topic.topic for table in tables} & self.unrecorded


def _differs(recorded: DataTopic, now: DataTopic, which: str = "now it has") -> TopicsChangedError:
    return TopicsChangedError(
        [f"topic {now.topic}: recorded is {_shown(recorded)}; {which} {_shown(now)}"]
    )


def _shown(topic: DataTopic) -> str:
    return (
        f"the id {topic.topic_id}, {topic.topic_partitions} topic partitions, "
        f"the key schema {topic.key_schema_id}"
    )
