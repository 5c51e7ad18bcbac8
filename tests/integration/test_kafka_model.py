"""One contract for the simulation's broker in memory and for a real one; see the cases."""

from __future__ import annotations

import threading
import uuid

import pytest

from tests.simulation.contract import CASES
from tests.simulation.contract_broker import BrokerStage
from tests.simulation.contract_model import ModelStage
from tidegate.local_stack.parts.java import find_java
from tidegate.local_stack.parts.jvm_parts import fetch_jvm_parts
from tidegate.local_stack.parts.kafka_broker import KafkaBroker
from tidegate.local_stack.parts.ports import choose_ports
from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.kafka.publisher import KafkaPublisher
from tidegate.schemas.progress import ChildPartition, PartitionAnnounced, ProgressRecord


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A real broker's address."""
    java = find_java()
    ports = choose_ports({"kafka_port": 0, "controller_port": 0})
    broker = KafkaBroker(
        java=java,
        parts=fetch_jvm_parts(java),
        data_dir=tmp_path_factory.mktemp("kafka"),
        port=ports["kafka_port"],
        controller_port=ports["controller_port"],
        cancelled=threading.Event(),
    )
    try:
        broker.start()
        yield broker.bootstrap_servers
    finally:
        broker.stop()


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_model(case, seed):
    case(ModelStage(seed))


@pytest.mark.integration
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_real_broker(case, stage):
    case(stage)


TIME_OUT_MS = 2_000
FIRST_CALLS = {
    "deliver": lambda publisher: announce(publisher) or publisher.await_delivery(),
    "fence": lambda publisher: publisher.send_offsets(((0, 1),)),
    "commit": lambda publisher: publisher.commit(),
    "abort": lambda publisher: publisher.abort("a slot was lost"),
}


def announce(publisher):
    body = PartitionAnnounced(ChildPartition("child", (), 1), "parent")
    return publisher.publish_progress(do.PublishProgress(0, 0, ProgressRecord("e", "w", body)))


class Publishers:
    """The production adapter, one for each first call, each with a transaction open."""

    def __init__(self, address, stage, *, timeout_ms):
        self._address, self._stage, self._timeout_ms = address, stage, timeout_ms
        self._names = {name: f"{name}-{uuid.uuid4().hex}" for name in FIRST_CALLS}
        self._made = []

    def started(self):
        return {name: self._started(name) for name in FIRST_CALLS}

    def _started(self, name):
        publisher = KafkaPublisher(
            bootstrap_servers=self._address,
            transactional_id=self._names[name],
            transaction_timeout_ms=self._timeout_ms,
            progress_topic=self._stage.topics["slots"],
            topic_partitions={},
            progress_schema_ids=dict.fromkeys((1, 2, 3, 4), (1, 2)),
        )
        publisher.start()
        self._made.append(publisher)
        return publisher

    def end(self):
        """Release the clients."""
        for publisher in self._made:
            publisher.close()

    def opened(self):
        made = self.started()
        for publisher in made.values():
            assert publisher.begin(self._stage.strange_metadata()) is None
            assert announce(publisher) is None
            assert isinstance(publisher.await_delivery(), on.Delivered)
        return made


@pytest.fixture
def stage(address):
    made = BrokerStage(address)
    yield made
    made.close()


@pytest.fixture
def publishers_with(address, stage):
    """Makes publishers with a transaction time-out; ends them after the test."""
    made = []

    def make(*, timeout_ms):
        made.append(Publishers(address, stage, timeout_ms=timeout_ms))
        return made[-1]

    yield make
    for publishers in made:
        publishers.end()


@pytest.mark.integration
def test_the_adapter_reports_a_fence_after_a_time_out_whatever_it_asks_first(
    publishers_with, stage
):
    """The event alone does not say whether a successor or the time-out did it; the group does."""
    publishers = publishers_with(timeout_ms=TIME_OUT_MS).opened()
    stage.until(lambda: stage.stable_end(("slots", 0)) == 2 * len(publishers))
    outcomes = {name: call(publishers[name]) for name, call in FIRST_CALLS.items()}
    assert outcomes == dict.fromkeys(FIRST_CALLS, on.ProducerFenced())
    again = publishers["commit"]
    again.start()
    assert again.begin(stage.strange_metadata()) is None
    assert announce(again) is None
    assert isinstance(again.await_delivery(), on.Delivered)
    assert again.commit() == on.TransactionCommitted()


@pytest.mark.integration
def test_the_adapter_reports_a_fence_after_a_successor_whatever_it_asks_first(
    publishers_with, stage
):
    publishers = publishers_with(timeout_ms=60_000)
    former, successors = publishers.opened(), publishers.started()
    outcomes = {name: call(former[name]) for name, call in FIRST_CALLS.items()}
    assert outcomes == dict.fromkeys(FIRST_CALLS, on.ProducerFenced())
    for successor in successors.values():
        assert successor.begin(stage.strange_metadata()) is None
        assert announce(successor) is None
        assert successor.commit() == on.TransactionCommitted()


@pytest.mark.integration
def test_the_adapter_goes_on_after_a_refused_fence(publishers_with, stage):
    member = stage.member("worker")
    stage.until(lambda: bool(member.slots), member)
    publisher = publishers_with(timeout_ms=60_000).started()["fence"]
    assert publisher.begin(stage.strange_metadata("worker")) is None
    assert announce(publisher) is None
    assert isinstance(publisher.await_delivery(), on.Delivered)
    assert isinstance(publisher.send_offsets(((0, 1),)), on.TransactionAborted)
    assert publisher.begin(member.metadata()) is None
    assert announce(publisher) is None
    assert isinstance(publisher.await_delivery(), on.Delivered)
    assert publisher.send_offsets(((0, 1),)) is None
    assert publisher.commit() == on.TransactionCommitted()
