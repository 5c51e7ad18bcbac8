"""Tables are created and dropped below a running fleet, and around a restart of it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.integration.shared_stack import SharedStack, now
from tests.integration.topic_reading import read_bytes, read_published
from tidegate.local_stack.demo.bank import ACCOUNTS, STREAM, Bank
from tidegate.local_stack.demo.bank_database import create_bank_database, open_accounts
from tidegate.local_stack.demo.pipeline import Pipeline
from tidegate.program.from_beginning import consume_from_beginning
from tidegate.program.registry_http import HttpSchemaRegistry
from tidegate.schemas.progress import DataTopic, TableAdded
from tidegate.schemas.progress_decoder import ProgressDecoder

pytestmark = [pytest.mark.integration, pytest.mark.slow]

BANK = Bank(accounts=3, seed=5)
DDL_TIMEOUT_S = 60
DEADLINE_S = 120
LATER = (
    "CREATE TABLE Later (Region STRING(9) NOT NULL, Id INT64 NOT NULL, V STRING(MAX))"
    " PRIMARY KEY (Id, Region)"
)


def insert(database: Any, *rows: tuple[str, int, str]) -> None:
    with database.batch() as batch:
        batch.insert("Later", columns=("Region", "Id", "V"), values=rows)


def later_rows(stack: SharedStack, pipeline: Pipeline, *, count: int) -> list[tuple[Any, Any, str]]:
    return sorted(
        (tuple(m.key().items()), m.value()["new_values"]["V"], m.headers()[1][1].decode())
        for m in read_published(stack, pipeline, stack.topic("Later"), count=count)
    )


@dataclass
class Running:
    """Two workers on a stream FOR ALL, and what they run on."""

    stack: SharedStack
    database: Any
    pipeline: Pipeline
    start: str

    def alter(self, *statements: str) -> None:
        self.database.update_ddl(list(statements)).result(timeout=DDL_TIMEOUT_S)


@pytest.fixture
def running(shared_stack: SharedStack) -> Iterator[Running]:
    stack = shared_stack
    database = create_bank_database(stack.database_name)
    pipeline = Pipeline(stack.programs(STREAM))
    found = Running(stack, database, pipeline, now())
    found.alter(f"ALTER CHANGE STREAM {STREAM} SET FOR ALL")
    try:
        pipeline.start_workers(2, start=found.start)
        open_accounts(database, BANK)
        read_published(stack, pipeline, stack.topic(ACCOUNTS), count=BANK.accounts)
        yield found
    finally:
        pipeline.stop()


def recorded_tables(stack: SharedStack) -> list[DataTopic]:
    """Return the topics that slot 0 has a `TableAdded` for, in its order."""
    decoder = ProgressDecoder(HttpSchemaRegistry(stack.registry_url).schema)
    consumer = consume_from_beginning(
        f"{stack.prefix}-progress",
        [0],
        bootstrap_servers=stack.bootstrap_servers,
        client_group="test",
    )
    found = []
    while True:
        message = consumer.poll(DEADLINE_S)
        assert message is not None
        if message.error() is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF
            consumer.close()
            return found
        value = message.value()
        body = None if value is None else decoder.decode(value).body
        if isinstance(body, TableAdded):
            found.append(body.topic)


@pytest.mark.rule("spanner-column-types")
def test_a_table_comes_and_goes(running: Running):
    stack, pipeline, topic = running.stack, running.pipeline, running.stack.topic("Later")
    running.alter(LATER)
    insert(running.database, ("eu", 1, "one"))
    first = ((("Id", 1), ("Region", "eu")), "one", "I")
    assert later_rows(stack, pipeline, count=1) == [first]
    tables = recorded_tables(stack)
    assert {one.topic for one in tables} == {topic}
    assert len(set(tables)) == 1

    assert pipeline.stop() == []
    insert(running.database, ("us", 2, "two"))
    running.alter("DROP TABLE Later")
    pipeline.start_workers(2, start=running.start)
    second = ((("Id", 2), ("Region", "us")), "two", "I")
    assert later_rows(stack, pipeline, count=2) == [first, second]
    pipeline.check()
    assert recorded_tables(stack) == tables
    assert pipeline.stop() == []


def test_a_later_table_whose_topic_kafka_refuses_concerns_only_its_changes(running: Running):
    """Kafka treats `.` and `_` as the same; parking lets the others go on."""
    stack, pipeline = running.stack, running.pipeline
    running.alter(
        "CREATE SCHEMA shop",
        "CREATE TABLE shop.Items (Id INT64) PRIMARY KEY (Id)",
        "CREATE TABLE shop_Items (Id INT64) PRIMARY KEY (Id)",
    )

    def insert_into(table: str, number: int) -> None:
        with running.database.batch() as batch:
            batch.insert(table, columns=("Id",), values=[(number,)])

    topic = stack.topic("shop.Items")
    insert_into("shop.Items", 1)
    read_published(stack, pipeline, topic, count=1)
    insert_into("shop_Items", 1)
    pipeline.wait(
        lambda: f"{stack.topic('shop_Items')}: Topic" in pipeline.log_tails(),
        what="the refusal", deadline_s=DEADLINE_S,
    )  # fmt: skip
    pipeline.check()
    assert pipeline.stop() == []

    parking = Pipeline(stack.programs(STREAM, TIDEGATE_PRODUCER_POISON="park"))
    try:
        parking.start_workers(2, start=running.start)
        insert_into("shop_Items", 2)
        insert_into("shop.Items", 2)
        assert len(read_published(stack, parking, topic, count=2)) == 2
        dead = f"{stack.prefix}-dead-letter"
        reasons = {dict(one.headers())["reason"] for one in read_bytes(stack, dead, count=2)}
        assert reasons == {b"TopicRefused"}
        parking.check()
    finally:
        assert parking.stop() == []


def test_a_later_topic_that_grows_stops_every_worker(running: Running):
    """Also the one that has read no change of the table, and whatever is inserted meanwhile."""
    stack, pipeline, topic = running.stack, running.pipeline, running.stack.topic("Later")
    running.alter(LATER)
    insert(running.database, ("eu", 1, "one"))
    later_rows(stack, pipeline, count=1)
    (table,) = set(recorded_tables(stack))

    admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
    more = NewPartitions(topic, table.topic_partitions + 1)
    admin.create_partitions([more])[topic].result(DEADLINE_S)
    workers = list(pipeline.workers)
    give_up_at = time.monotonic() + DEADLINE_S
    for number in itertools.count(2):
        if all(worker.process.exit_code is not None for worker in workers):
            break
        assert time.monotonic() < give_up_at, pipeline.log_tails()
        insert(running.database, ("eu", number, "more"))
        time.sleep(0.2)

    assert [worker.process.exit_code for worker in workers] == [2, 2]
    for worker in workers:
        grown = f"topic {topic} had {table.topic_partitions} topic partitions"
        tail = worker.process.log_tail(20)
        # One that meets the table only now compares the topic with what is recorded of it.
        assert grown in tail or f"topic {topic}: recorded is" in tail
    consumer = consume_from_beginning(
        topic, [table.topic_partitions],
        bootstrap_servers=stack.bootstrap_servers, client_group="test",
    )  # fmt: skip
    grown_by = TopicPartition(topic, table.topic_partitions)
    assert consumer.get_watermark_offsets(grown_by, timeout=DEADLINE_S) == (0, 0)
    consumer.close()
