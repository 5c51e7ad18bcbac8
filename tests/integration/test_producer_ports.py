"""One contract for the publisher and the membership in memory and for those on a real broker."""

from __future__ import annotations

import time
import uuid
from contextlib import suppress

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from tests.simulation.contract_ports import CASES, SLOTS, TestWorker
from tidegate.producer.kafka.dead_letters import KafkaDeadLetters
from tidegate.producer.kafka.membership import KafkaMembership
from tidegate.producer.kafka.progress_follower import ProgressFollower
from tidegate.producer.kafka.publisher import KafkaPublisher
from tidegate.producer.kafka.root_slot import RootSlotReader
from tidegate.producer.kafka.topics import KafkaTopics
from tidegate.producer.memory.broker import MemoryBroker
from tidegate.producer.memory.clock import ManualClock
from tidegate.producer.memory.group import Group
from tidegate.producer.memory.membership import MemoryMembership, MemoryStreamStartFinder
from tidegate.producer.memory.publisher import MemoryPublisher
from tidegate.schemas.progress_decoder import ProgressDecoder
from tidegate.schemas.registry import InMemorySchemaRegistry

TURNS_MAX = 200
PATIENCE_S = 60
BEHIND_S = 2
"""Ten fetches of a client."""
SESSION_TIMEOUT_MS = 6_000
PROGRESS = "bank-progress"
DEAD_LETTER = "bank-dead-letter"
KEY_ID, RECORD_ID = 1, 2


class HesitantDecoder(ProgressDecoder):
    """Does not know the schema of some records when they are read for the first time."""

    def __init__(self):
        super().__init__(InMemorySchemaRegistry().schema, own_ids=[RECORD_ID])
        self._asked = set()
        self._count = 0

    def is_ready(self, value):
        self._count += 1
        if value in self._asked or self._count % 3:
            return True
        self._asked.add(value)
        return False


class MemoryStage:
    """The models of `producer/memory`."""

    def __init__(self):
        self._broker = MemoryBroker({PROGRESS: SLOTS, DEAD_LETTER: 1}, group=Group(SLOTS))
        self._started = 0

    def worker(self, name):
        self._started += 1
        worker = TestWorker(name)
        worker.publisher = MemoryPublisher(
            self._broker, transactional_id=name, progress_topic=PROGRESS, dead_letter=DEAD_LETTER
        )
        worker.membership = MemoryMembership(
            self._broker, worker=name, client_id=f"{name}-{self._started}", topic=PROGRESS,
            listener=worker, clock=ManualClock(),
        )  # fmt: skip
        worker.publisher.start()
        worker.membership.start()
        return worker

    def finder(self):
        return MemoryStreamStartFinder(self._broker, topic=PROGRESS, root_slot=0)

    def dead_letters(self):
        return [entry.value for entry in self._broker.read(DEAD_LETTER)]

    def truncate(self, slot, below):
        self._broker.logs[PROGRESS, slot].expire(below)

    def let_pass(self):
        """Nothing goes on behind the models."""

    def until(self, condition, *workers):
        for _ in range(TURNS_MAX):
            if condition():
                return
            for worker in workers:
                worker.serve()
        raise AssertionError(f"the condition does not hold after {TURNS_MAX} turns")


class KafkaStage:
    """The adapters of `producer/kafka`, on topics and a group of the case's own."""

    def __init__(self, address):
        self._address = address
        self._group = f"g{uuid.uuid4().hex[:8]}"
        self._topic = f"{self._group}-progress"
        self._dead_letter = f"{self._group}-dead-letter"
        topics = KafkaTopics(address)
        topics.ensure_progress(self._topic, slots=SLOTS, replication=1)
        topics.ensure_dead_letter(self._dead_letter, replication=1)
        self._workers = []

    def worker(self, name):
        worker = TestWorker(name)
        worker.publisher = KafkaPublisher(
            bootstrap_servers=self._address, transactional_id=f"{self._group}-{name}",
            transaction_timeout_ms=30_000, progress_topic=self._topic,
            topic_partitions={self._dead_letter: 1}, dead_letter=self._dead_letter,
            progress_schema_ids=dict.fromkeys((1, 2, 3, 4), (KEY_ID, RECORD_ID)),
        )  # fmt: skip
        decoder = HesitantDecoder()
        worker.membership = KafkaMembership(
            bootstrap_servers=self._address, group=self._group, worker=name, topic=self._topic,
            session_timeout_ms=SESSION_TIMEOUT_MS, listener=worker, decoder=decoder,
            root_slot=self.finder(),
            open_follower=lambda epoch, with_moves: ProgressFollower(
                bootstrap_servers=self._address, group=self._group, topic=self._topic,
                slots=SLOTS, epoch=epoch, with_moves=with_moves, decoder=decoder,
            ),
        )  # fmt: skip
        worker.publisher.start()
        worker.membership.start()
        self._workers.append(worker)
        return worker

    def finder(self):
        return RootSlotReader(
            bootstrap_servers=self._address, group=self._group, topic=self._topic,
            decoder=HesitantDecoder(),
        )  # fmt: skip

    def dead_letters(self):
        letters = KafkaDeadLetters(
            bootstrap_servers=self._address, group=self._group, topic=self._dead_letter,
            topic_partitions=1, patience_s=PATIENCE_S,
        )  # fmt: skip
        return [letter.change for letter in letters.read() if letter is not None]

    def truncate(self, slot, below):
        # A broker deletes no records of a topic that is compacted only.
        change = ConfigEntry(
            "cleanup.policy", "compact,delete", incremental_operation=AlterConfigOpType.SET
        )
        resource = ConfigResource(
            ConfigResource.Type.TOPIC, self._topic, incremental_configs=[change]
        )
        admin = AdminClient({"bootstrap.servers": self._address})
        for answer in admin.incremental_alter_configs([resource]).values():
            answer.result(PATIENCE_S)
        self.until(lambda: _deletes(admin, TopicPartition(self._topic, slot, below)))

    def let_pass(self):
        time.sleep(BEHIND_S)

    def until(self, condition, *workers):
        give_up_at = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < give_up_at, "timed out: the condition does not hold"
            for worker in workers:
                worker.serve()

    def close(self):
        for worker in self._workers:
            with suppress(AttributeError):  # a case has closed it
                worker.membership.close()


def _deletes(admin, place):
    """Delete records; return whether the broker does already what its topic's new policy allows."""
    (answer,) = admin.delete_records([place]).values()
    try:
        answer.result(PATIENCE_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.POLICY_VIOLATION:
            raise
        return False
    return True


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_in_memory(case):
    case(MemoryStage())


@pytest.mark.integration
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_on_a_real_broker(case, kafka_and_registry):
    stage = KafkaStage(kafka_and_registry.bootstrap_servers)
    try:
        case(stage)
    finally:
        stage.close()
