"""The stream's topics: the topics of later tables, agreed by all workers, and changes of topics.

`StreamStarted` names the topics of the tables that existed when the stream began.  A later topic is
fixed by a `TableAdded` in the root's slot, which every worker reads.  A worker publishes nothing to
such a topic before it has *read* the record, which another worker may have written: so no worker
places a record by a number of topic partitions that the slot does not hold.

    FOUND -> (no record in the slot: written with the next transaction) -> RECORDED

A redrive, during which no worker publishes, writes the record in its own transaction.  Any worker
may write the record, because the owner of the root's slot may be absent.  Two workers that find a
table at the same moment both write it, and the first record applies.  A record that differs from
the first one, or from the topic that this worker has found, is final: the topic was changed in
between.

The broker describes the topics periodically.  A topic that grows would move keys between topic
partitions, and one that was deleted or re-created has lost its records.  Both are final, so the
worker stops.  A topic that is missing from one description may be unknown to a broker that has just
started: it has to be missing for a while.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core.stream_identity import StreamIdentity
from tidegate.producer.errors import TopicsChangedError
from tidegate.producer.messages import PublishableRecord
from tidegate.schemas.progress import DataTopic, ProgressRecord, StreamStarted, TableAdded

_MISSING_PATIENCE_US = 15_000_000


class StreamTopics:
    """One worker's knowledge of the stream's topics.

    `identity` holds the topics at the worker's start; the worker publishes only where the identity
    agrees with the epoch's records.  `version` is the version of the progress records that the
    worker writes: under version 1 it records no table, and waits only until it has read the records
    of other workers.
    """

    def __init__(self, identity: StreamIdentity, *, version: int) -> None:
        self._is_recorded_here = version > 1
        self._progress = identity.progress_topic_id, identity.slots
        self._watched = {
            topic.topic: (topic.topic_id, topic.topic_partitions) for topic in identity.topics
        }
        """Topic -> the id and the number of topic partitions that it has to keep."""
        self._missing_since_us: dict[str, int] = {}
        self._topics = {topic.topic: topic for topic in identity.topics}
        self._recorded: dict[str, DataTopic] = {}
        self._committed: set[str] = set()
        """Topics whose record this worker has committed and not read yet."""
        self._epoch: str | None = None
        self._early: list[ProgressRecord] = []
        """Records that were read before the epoch was known."""
        self.is_at_end = False
        """Whether the root's slot was read to its end once."""
        self.unrecorded: frozenset[str] = frozenset()
        """Topics to which nothing may be published yet."""

    # ------------------------------------------------------------ events

    def handle(self, event: on.TopicEvent, *, now_us: int) -> list[do.Effect]:
        """Add an observation of the topics; return the effects that follow, such as a stop."""
        match event:
            case on.TopicsObserved():
                changed = self.changes(event, now_us=now_us)
                return [] if changed is None else [do.Stop(changed)]
            case on.TableFound():
                return self._find(event.topic)
            case on.RootSlotRead():
                self.is_at_end |= event.is_at_end
                self._early += event.records
                return self._read_early()

    def open(self, record: ProgressRecord) -> list[do.Effect]:
        """Add the record that opened the epoch; return the effects of earlier records."""
        effects: list[do.Effect] = []
        if isinstance(record.body, StreamStarted):
            self._epoch = record.epoch
            self._recorded |= {topic.topic: topic for topic in record.body.topics}
            for topic in record.body.topics:  # also of tables that were dropped since
                effects += self._watch(topic)
        return effects + self._read_early()

    def _find(self, topic: DataTopic) -> list[do.Effect]:
        first = self._topics.setdefault(topic.topic, topic)
        recorded = self._recorded.get(topic.topic, first)
        self._update()
        for other in (first, recorded):
            if other != topic:
                return [do.Stop(_differs(other, topic))]
        return self._watch(topic)

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
        self._committed.discard(topic.topic)
        if first != topic:
            return [do.Stop(_differs(first, topic, "another record says"))]
        identified = self._topics.get(topic.topic, topic)
        if identified != topic:
            return [do.Stop(_differs(topic, identified))]
        return self._watch(topic)

    def _update(self) -> None:
        if self._epoch is None:
            return
        waits = self._is_recorded_here or not self.is_at_end
        self.unrecorded = frozenset(self._topics.keys() - self._recorded.keys() if waits else ())

    # ------------------------------------------------------------ comparing

    def _watch(self, topic: DataTopic) -> list[do.Effect]:
        """Compare one more data topic from now on."""
        if topic.topic in self._watched:
            return []
        self._watched[topic.topic] = topic.topic_id, topic.topic_partitions
        return [do.WatchTopic(topic.topic)]

    def changes(self, event: on.TopicsObserved, *, now_us: int) -> TopicsChangedError | None:
        """Return the error for topics that have certainly changed; None if there are none."""
        pairs = [(event.progress, self._progress)]
        pairs += [(topic, self._watched[topic.topic]) for topic in event.data]
        differences = [self._difference(topic, *was, now_us=now_us) for topic, was in pairs]
        certain = [difference for difference in differences if difference]
        return TopicsChangedError(certain) if certain else None

    def _difference(self, now: on.TopicState, topic_id: str, count: int, *, now_us: int) -> str:
        """Return the change of a topic; empty if none is certain."""
        name = now.topic
        if now.topic_id is None:
            since_us = self._missing_since_us.setdefault(name, now_us)
            is_certain = now_us - since_us >= _MISSING_PATIENCE_US
            return f"topic {name} was deleted (its id was {topic_id})" if is_certain else ""
        self._missing_since_us.pop(name, None)
        if now.topic_id != topic_id:
            return f"topic {name} was re-created: its id was {topic_id}, it is {now.topic_id}"
        if now.topic_partitions != count:
            return f"topic {name} had {count} topic partitions, it has {now.topic_partitions}"
        return ""

    # ------------------------------------------------------------ publishing

    def waited_for(self, records: Iterable[PublishableRecord]) -> set[str]:
        """Return the topics of records to which nothing may be published yet.

        Parked changes count too, because they will be put back into their topics.
        """
        topics: set[str] = set()
        for record in records:
            topics.update(message.topic for message in record.messages)
            topics.update(change.topic for change in record.parked)
        return topics & self.unrecorded

    def due(self, topics: Iterable[str]) -> list[TableAdded]:
        """Return the records to write for the topics that data records wait for."""
        if not self.is_at_end:
            return []  # the record may be in the unread part
        missing = self.unrecorded.intersection(topics) - self._committed
        return [TableAdded(self._topics[topic]) for topic in sorted(missing)]

    def confirm(self, tables: Iterable[TableAdded]) -> None:
        """Record that tables are committed: they will be read."""
        self._committed |= {table.topic.topic for table in tables} & self.unrecorded


def _differs(
    recorded: DataTopic, now: DataTopic, verdict: str = "now it has"
) -> TopicsChangedError:
    return TopicsChangedError(
        [f"topic {now.topic}: recorded is {_shown(recorded)}; {verdict} {_shown(now)}"]
    )


def _shown(topic: DataTopic) -> str:
    return (
        f"the id {topic.topic_id}, {topic.topic_partitions} topic partitions, "
        f"the key schema {topic.key_schema_id}"
    )
