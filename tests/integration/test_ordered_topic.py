"""The ordered topic on a real broker: the contract, limits, time-outs, replaced runs."""

from __future__ import annotations

import random
import threading
import time
import uuid

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
)

from tests import topic_contract as contract
from tests.integration.shared_stack import read_bytes, until
from tests.topic_contract import CASES, change, opened, published, release, values
from tidegate.spark_consumer.errors import RecordTooLarge, TopicWriterReplaced
from tidegate.spark_consumer.sinks.kafka.output_topic import KafkaOutputTopic
from tidegate.spark_consumer.sinks.kafka.port import ReleaseRecord

pytestmark = pytest.mark.integration

PATIENCE_S = 60


@pytest.fixture
def address(mortal_broker):
    return mortal_broker.bootstrap_servers


class KafkaStage:
    """Topics of the case's own; `topic_contract.Stage`."""

    def __init__(self, address, topic_partitions=1):
        self.bootstrap_servers = address
        self.topic_partitions = topic_partitions
        self.topic = f"all-{uuid.uuid4().hex[:8]}"
        self.admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        self._opened = []

    def process(self, **options):
        topic = KafkaOutputTopic(
            self.topic,
            bootstrap_servers=self.bootstrap_servers,
            topic_partitions=self.topic_partitions,
            **options,
        )
        self._opened.append(topic)
        return topic

    def records(self):
        topics = self.admin.list_topics(self.topic, timeout=PATIENCE_S).topics
        found = [[] for _ in topics[self.topic].partitions]
        for one in read_bytes(self, self.topic):
            found[one.partition()].append((one.key(), one.value(), tuple(one.headers() or ())))
        return found

    def releases(self):
        topic = f"{self.topic}-releases"
        return [
            ReleaseRecord.parse(one.value(), topic=topic).release for one in read_bytes(self, topic)
        ]

    def write_foreign(self):
        self.process().ensure()
        client = Producer({"bootstrap.servers": self.bootstrap_servers})
        client.produce(self.topic, b"v", b"k")
        assert client.flush(PATIENCE_S) == 0

    def recreate(self, *, releases):
        topic = f"{self.topic}-releases" if releases else self.topic
        self.admin.delete_topics([topic])[topic].result(PATIENCE_S)
        until(lambda: topic not in self.admin.list_topics(timeout=PATIENCE_S).topics)

    def grow(self, topic_partitions):
        wanted = [NewPartitions(self.topic, topic_partitions)]
        self.admin.create_partitions(wanted)[self.topic].result(PATIENCE_S)

    def close(self):
        for topic in self._opened:
            topic.close()
        self.admin = None


@pytest.fixture
def stage_of(address):
    """Make a stage."""
    made = []

    def make(topic_partitions=1):
        made.append(KafkaStage(address, topic_partitions))
        return made[-1]

    yield make
    for stage in made:
        stage.close()


@pytest.mark.rule("sink-topic-total", "sink-topic-transaction")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_contract(case, stage_of):
    case(stage_of())


@pytest.mark.deep
@pytest.mark.rule("sink-topic-total", "sink-topic-key")
def test_a_kill_at_any_step_neither_loses_nor_repeats(stage_of):
    contract.a_kill_at_any_step_neither_loses_nor_repeats(stage_of)


@pytest.mark.rule("sink-topic-key")
def test_each_key_is_in_order_where_java_would_place_it(stage_of):
    contract.each_key_is_in_order_where_java_would_place_it(stage_of(3))


def test_topics_are_made_for_what_they_are(stage_of):
    stage = stage_of()
    output, releases = stage.process().ensure()
    assert (output.topic_partitions, output.policies) == (1, {"delete"})
    assert (releases.topic_partitions, releases.policies) == (1, {"compact"})
    assert stage.process().ensure() == (output, releases)


def test_a_change_of_two_megabytes_has_room(stage_of):
    stage = stage_of()
    large = change(0, 0)._replace(value=b"x" * (2 << 20))
    sink = opened(stage.process())
    sink.write(release(0, [large]))
    ((record,),) = stage.records()
    assert record[1] == large.value
    sink.close()


@pytest.mark.rule("sink-topic-transaction")
def test_a_change_that_the_topic_does_not_take_is_named_and_nothing_is_published(stage_of):
    stage = stage_of()
    stage.process().ensure()
    limit_bytes(stage, 10_000)
    large = change(0, 1)._replace(value=b"x" * 20_000)
    sink = opened(stage.process())
    with pytest.raises(RecordTooLarge, match="larger than the output topic takes") as caught:
        sink.write(release(0, [change(0, 0), large]))
    assert (caught.value.fields["bytes_max"], caught.value.fields["topic"]) == (10_000, stage.topic)
    limit_bytes(stage, 100_000)
    sink.open(query_id=contract.QUERY, release_max=0)
    sink.write(release(0, [change(0, 0), large]))
    assert [len(value) for value in published(stage)] == [3, 20_000]
    sink.close()


def test_a_limit_that_becomes_smaller_is_named(stage_of):
    """The broker refuses the record then, and not the client."""
    stage = stage_of()
    sink = opened(stage.process())
    limit_bytes(stage, 10_000)
    large = change(0, 0)._replace(value=bytes(uuid.uuid4().int % 251 for _ in range(20_000)))
    with pytest.raises(RecordTooLarge, match="larger than the output topic takes"):
        sink.write(release(0, [_incompressible(large)]))
    sink.close()


@pytest.mark.rule("sink-topic-total")
def test_a_transaction_that_outlives_its_time_out_is_done_again(stage_of):
    """Kafka ends it and fences its producer, as if another run had taken over."""
    stage = stage_of()
    topic = stage.process(transaction_timeout_ms=2_000)
    whole = release(0)
    waited = []

    def slow():
        for record in whole.source_records():
            yield record
            if not waited:
                waited.append(True)
                topic.flush()
                # The broker looks for such transactions every ten seconds.
                time.sleep(15)

    sink = opened(topic)
    sink.write(release(0, source_records=slow))
    assert published(stage) == values(0)
    sink.close()


@pytest.mark.rule("sink-topic-total")
def test_a_replaced_run_that_stood_still_in_a_release_is_replaced(stage_of):
    """Its transaction was ended by its successor, which has published the release."""
    stage = stage_of()
    elder, younger = stage.process(), stage.process()
    whole = release(0)

    def replaced():
        for record in whole.source_records():
            yield record
            if record.ordinal == 1:
                elder.flush()
                opened(younger).write(whole)

    with pytest.raises(TopicWriterReplaced):
        opened(elder).write(release(0, source_records=replaced))
    assert published(stage) == values(0)


def test_a_replaced_run_is_named_in_the_middle_of_a_large_release(stage_of):
    """The client learns of it while records are sent, and names no cause by itself."""
    stage = stage_of()
    elder, younger = stage.process(), stage.process()
    replaced = opened(elder)
    opened(younger)
    with pytest.raises(TopicWriterReplaced):
        replaced.write(release(0, [change(0, n) for n in range(100_000)]))
    assert published(stage) == []


@pytest.mark.parametrize(
    "step",
    [
        pytest.param("begin", marks=pytest.mark.deep),
        "produce",
        pytest.param("flush", marks=pytest.mark.deep),
        "commit",
    ],
)
def test_a_broker_that_is_killed_and_starts_again_is_waited_for(mortal_broker, stage_of, step):
    """Each release is there once, whatever it interrupted."""
    stage = stage_of()
    restarts = []

    def restart(name, _number):
        if name == step and not restarts and armed:
            mortal_broker.kill()
            restarts.append(threading.Thread(target=mortal_broker.start))
            restarts[0].start()

    armed = []
    topic = contract.Watched(stage.process(), before=restart)
    sink = opened(topic)
    sink.write(release(0))
    armed.append(True)
    sink.write(release(1))
    sink.write(release(2))
    restarts[0].join()
    assert published(stage) == values(0, 1, 2)


def limit_bytes(stage, bytes_max):
    entry = ConfigEntry(
        "max.message.bytes", str(bytes_max), incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ConfigResource.Type.TOPIC, stage.topic, incremental_configs=[entry])
    for answer in stage.admin.incremental_alter_configs([resource]).values():
        answer.result(PATIENCE_S)


def _incompressible(change):
    return change._replace(value=random.Random(1).randbytes(len(change.value)))
