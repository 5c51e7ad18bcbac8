"""The ordered topic's port over the broker in memory, whose transactions behave as Kafka's do."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from tidegate.producer.memory.broker import MemoryBroker, ProducerFenced
from tidegate.producer.memory.group import Group
from tidegate.spark_consumer.errors import TopicWriterReplaced
from tidegate.spark_consumer.sinks.kafka.port import ReleaseRecord, TopicFacts

OUTPUT, RELEASES = "all-changes", "all-changes-releases"


@dataclass(frozen=True)
class Sent:
    """What a record holds beside its key."""

    value: bytes
    headers: tuple


class MemoryTopic:
    """One process's producer; `stage` is what survives it."""

    topic, releases_topic = OUTPUT, RELEASES

    def __init__(self, stage):
        self._stage = stage
        self._broker = stage.broker
        self._handle = None

    def ensure(self):
        for topic, number in ((OUTPUT, self._stage.topic_partitions), (RELEASES, 1)):
            if not self._broker.topic_partitions(topic):
                self._broker.create_topic(topic, number)
        return tuple(
            TopicFacts(
                self._broker.describe_topic(topic).topic_id,
                self._broker.topic_partitions(topic),
                frozenset(self._stage.policies[topic]),
            )
            for topic in (OUTPUT, RELEASES)
        )

    def start(self, transactional_id):
        self._stage.transactional_ids.append(transactional_id)
        self._handle = self._broker.init_producer(transactional_id)

    def last_release(self):
        found = self._broker.read(RELEASES)
        return ReleaseRecord.parse(found[-1].value.value, topic=RELEASES) if found else None

    def has_records(self):
        return bool(self._broker.read(OUTPUT))

    def begin(self):
        pass

    def produce(self, number, key, value, headers):
        self._produce((OUTPUT, number), key, Sent(value, tuple(headers)))

    def produce_release(self, record):
        self._produce((RELEASES, 0), record.key, Sent(record.value, ()))

    def flush(self):
        pass

    def commit(self):
        self._end(commit=True)

    def abort(self):
        with suppress(TopicWriterReplaced):
            self._end(commit=False)

    def close(self):
        self._handle = None

    def _produce(self, place, key, sent):
        try:
            self._broker.produce(self._handle, place, key, sent)
        except ProducerFenced as error:
            raise TopicWriterReplaced(str(error)) from None

    def _end(self, *, commit):
        try:
            self._broker.end(self._handle, commit=commit)
        except ProducerFenced as error:
            raise TopicWriterReplaced(str(error)) from None


class MemoryStage:
    """A broker in memory; see `topic_contract.Stage`."""

    def __init__(self, topic_partitions=1):
        self.broker = MemoryBroker({"unused": 1}, group=Group(1))
        self.topic_partitions = topic_partitions
        self.policies = {OUTPUT: {"delete"}, RELEASES: {"compact"}}
        self.transactional_ids = []

    def process(self):
        return MemoryTopic(self)

    def records(self):
        places = [(OUTPUT, n) for n in range(self.broker.topic_partitions(OUTPUT))]
        return [
            [
                (entry.key, entry.value.value, entry.value.headers)
                for entry in self.broker.logs[place].read()
            ]
            for place in places
        ]

    def releases(self):
        return [
            ReleaseRecord.parse(entry.value.value, topic=RELEASES).release
            for entry in self.broker.read(RELEASES)
        ]

    def write_foreign(self, topic=OUTPUT):
        MemoryTopic(self).ensure()
        handle = self.broker.init_producer("foreign")
        self.broker.produce(handle, (topic, 0), b"k", Sent(b"v", ()))
        self.broker.end(handle, commit=True)

    def recreate(self, *, releases):
        for topic in (RELEASES,) if releases else (OUTPUT,):
            self.broker.delete_topic(topic)

    def grow(self, topic_partitions):
        self.broker.add_topic_partitions(OUTPUT, topic_partitions)

    def close(self):
        """Nothing is open."""
