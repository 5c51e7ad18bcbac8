"""What the benchmarks of a whole worker on the broker in memory share: its topics and its rounds.

A worker compares its topics with the broker's after some seconds, so their ids have to be real.
"""

from __future__ import annotations

from benchmarks.producer.responses import TABLE
from tidegate.producer.driver.loop import FleetWorker
from tidegate.producer.memory.broker import MemoryBroker
from tidegate.producer.translation.table_registrar import TableRegistrar
from tidegate.producer.translation.translator import TableEncoding
from tidegate.schemas.errors import InvariantViolation
from tidegate.schemas.progress import DataTopic
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.topics import TopicNames

NAMES = TopicNames("bench")


def table_encoding() -> TableEncoding:
    """Return the encoding of the benchmark's table."""
    return TableRegistrar(NAMES, InMemorySchemaRegistry()).register(TABLE)


def topic_id(broker: MemoryBroker, topic: str) -> str:
    """Return the id of a topic, which is there."""
    return str(broker.describe_topic(topic).topic_id)


def data_topic(broker: MemoryBroker, topic: str) -> DataTopic:
    """Return a data topic as it is; the schema of its keys has the id 1."""
    return DataTopic(topic, topic_id(broker, topic), broker.topic_partitions(topic), 1)


def step(worker: FleetWorker) -> None:
    """Do one round; raises the error that has stopped the worker."""
    if not worker.step():
        message = "the worker has stopped without an error"
        raise worker.error or InvariantViolation(message)
