"""What a test has of its own on the broker and registry that it shares with others.

A pipeline's workers are programs.  Its consumer is a query of the process's own Spark session
(`gate`), unless a test is about the program.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import deltalake
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer

from spanner_simulator import Simulator
from tests.command_server import run_module
from tidegate.local_stack.demo.bank import Dialect
from tidegate.local_stack.demo.bank_database import create_database
from tidegate.local_stack.demo.conductor import SimulatorControl
from tidegate.local_stack.demo.pipeline import Pipeline
from tidegate.local_stack.parts.programs import DatabaseName, Program, Programs
from tidegate.local_stack.parts.stack import LocalStack
from tidegate.spark_consumer.library.builder import stream as stream_builder
from tidegate.spark_consumer.library.query import TidegateQuery

STREAM = "Feed"
PATIENCE_S = 240
COMMAND_S = {"tidegate.producer": 240, "tidegate.spark_consumer": 600}
STREAM_PARTITIONS = 4
"""As a `LocalStack` has them."""
CONSUMER = "TIDEGATE_CONSUMER_"


def now() -> str:
    """Return the time at which a stream starts that begins now."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def new_prefix() -> str:
    """Return a prefix that no other test has, for topics, groups and subjects."""
    return f"t{uuid.uuid4().hex[:8]}"


def until(condition: Any, story: Any = lambda: "", *, patience_s: float = PATIENCE_S) -> None:
    """Wait for a condition; `story` says in the error what happened instead."""
    give_up_at = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < give_up_at, story()
        time.sleep(0.1)


# ---------------------------------------------------------------- stacks


@dataclass(frozen=True, slots=True)
class SharedStack:
    """The addresses as a `LocalStack` has them, and the names that belong to one test."""

    bootstrap_servers: str
    registry_url: str
    simulator: Simulator
    prefix: str
    folder: Path

    @property
    def spanner_address(self) -> str:
        """The simulator's gRPC address."""
        return self.simulator.grpc_address

    @property
    def control_address(self) -> str:
        """The simulator's control address."""
        return self.simulator.control_address

    @property
    def database_name(self) -> DatabaseName:
        """The only database of the test's simulator."""
        return DatabaseName(address=self.spanner_address)

    def create_database(
        self, statements: Sequence[str], *, dialect: Dialect = Dialect.GOOGLESQL
    ) -> Any:
        """Create the database with its tables and change stream; return the client's object."""
        return create_database(self.database_name, statements, dialect=dialect)

    def control(self, stream: str = STREAM) -> SimulatorControl:
        """Return what splits and merges stream partitions."""
        return SimulatorControl(self.control_address, self.database_name.path, stream)

    def topic(self, table: str) -> str:
        """Return the name of a table's topic."""
        return f"{self.prefix}.{table}"

    def programs(self, stream: str = STREAM, *, name: str = "", **settings: object) -> Programs:
        """Return the programs of a pipeline; with a name, of one with a prefix of its own.

        Settings are named without `TIDEGATE_`: `PRODUCER_SLOTS=4`.
        """
        return Programs(
            folder=self.folder / name,
            bootstrap_servers=self.bootstrap_servers,
            registry_url=self.registry_url,
            spanner_address=self.spanner_address,
            database=self.database_name,
            stream=stream,
            prefix=f"{self.prefix}{name}",
            more={f"TIDEGATE_{key}": str(value) for key, value in settings.items()},
        )

    def topics(self) -> set[str]:
        """Return the topics whose names begin with the prefix."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        found = admin.list_topics(timeout=PATIENCE_S).topics
        return {name for name in found if name.startswith(self.prefix)}


@contextlib.contextmanager
def open_shared_stack(
    stack: LocalStack, folder: Path, *, seed: int = 5, stream_partitions: int = STREAM_PARTITIONS
) -> Iterator[SharedStack]:
    """Yield a simulator and a prefix on a running broker and registry.

    At the end the simulator stops and the prefix's topics are deleted, so that nothing of a test
    takes time from the next one.
    """
    with Simulator(seed=seed, stream_partitions=stream_partitions) as simulator:
        opened = SharedStack(
            bootstrap_servers=stack.bootstrap_servers,
            registry_url=stack.registry_url,
            simulator=simulator,
            prefix=new_prefix(),
            folder=folder,
        )
        try:
            yield opened
        finally:
            names = list(opened.topics())
            admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
            for deleted in admin.delete_topics(names).values() if names else ():
                deleted.result(PATIENCE_S)


# ---------------------------------------------------------------- programs and queries


@contextlib.contextmanager
def running(programs: Programs, workers: int = 1, *, start: str = "") -> Iterator[Pipeline]:
    """Run workers from now on, or from `start`; at the end each has to stop in order."""
    pipeline = Pipeline(programs)
    try:
        if workers:
            pipeline.start_workers(workers, start=start or now())
        yield pipeline
    except BaseException:
        pipeline.stop()
        raise
    assert pipeline.stop() == []


def with_command(worker: Program, command: list[str], **environ: str) -> Program:
    """Return the same program with another command."""
    spec = replace(worker.spec, command=command, environ={**(worker.spec.environ or {}), **environ})
    return Program(spec)


@contextlib.contextmanager
def gate(spark: Any, programs: Programs, **options: object) -> Iterator[TidegateQuery]:
    """Run the consumer of a pipeline as a query of the session, with the program's settings."""
    secure = programs.secure
    settings: dict[str, object] = {
        "bootstrap_servers": (secure or programs).bootstrap_servers,
        "registry_url": programs.registry_url,
        "prefix": programs.prefix,
        "output": str(programs.output),
        "checkpoint": str(programs.checkpoint),
        "sinks": "changelog,mirror",
        **({} if secure is None else {"kafka_options": secure.client_options()}),
        **{
            name.removeprefix(CONSUMER).lower(): value
            for name, value in programs.more.items()
            if name.startswith(CONSUMER)
        },
        **options,
    }
    query = stream_builder(spark, **settings).start()
    try:
        yield query
    finally:
        query.stop()


def wait_for(query: TidegateQuery, pipeline: Pipeline, condition: Any, *, what: str) -> None:
    """Wait for a condition while workers and query run; raises what ends the query."""
    pipeline.wait(
        condition,
        what=what,
        deadline_s=PATIENCE_S,
        tick=lambda: query.awaitTermination(0.05) and None,
    )


def wait_released(query: TidegateQuery, pipeline: Pipeline, through_us: int) -> None:
    """Wait until everything committed up to a time is in changelog and mirrors."""

    def is_released() -> bool:
        released = pipeline.released()
        return released.through_us >= through_us and released.is_mirrored

    wait_for(query, pipeline, is_released, what=f"a release through {through_us} us")


def release(spark: Any, pipeline: Pipeline, through_us: int, **options: object) -> None:
    """Run the consumer until everything committed up to a time is in changelog and mirrors."""
    with gate(spark, pipeline.programs, **options) as query:
        wait_released(query, pipeline, through_us)


def run_producer(
    programs: Programs, *arguments: str, **environ: str
) -> subprocess.CompletedProcess[str]:
    """Run `tidegate-producer`; `environ` is added to its own, named without `TIDEGATE_`."""
    return _run("tidegate.producer", programs.worker("unused", start="now"), arguments, environ)


def run_consumer(
    programs: Programs, *arguments: str, **environ: str
) -> subprocess.CompletedProcess[str]:
    """Run `tidegate-consumer`; `environ` is added to its own, named without `TIDEGATE_`."""
    return _run("tidegate.spark_consumer", programs.consumer("unused"), arguments, environ)


def _run(
    module: str, program: Program, arguments: tuple[str, ...], environ: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    more = {
        f"TIDEGATE_{name}" if name.startswith(("PRODUCER_", "CONSUMER_")) else name: value
        for name, value in environ.items()
    }
    done = run_module(
        module,
        *arguments,
        environ={**(program.spec.environ or {}), **more},
        folder=program.spec.folder,
        timeout_s=COMMAND_S[module],
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


# ---------------------------------------------------------------- what is read


def rows_of(programs: Programs, table: str) -> list[dict[str, Any]]:
    """Return the rows of a Delta table of the output, such as `mirror/Orders`."""
    return deltalake.DeltaTable(programs.output / table).to_pyarrow_table().to_pylist()


def read_published(
    stack: LocalStack | SharedStack, pipeline: Pipeline, topic: str, *, count: int
) -> list[Any]:
    """Wait for a topic while the programs run, then read it: see `read_everything`."""
    admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
    pipeline.wait(
        lambda: topic in admin.list_topics(timeout=30).topics,
        what=f"topic {topic}",
        deadline_s=PATIENCE_S,
    )
    return read_everything(stack, topic, count=count)


def read_everything(stack: LocalStack | SharedStack, topic: str, *, count: int) -> list[Any]:
    """Read a topic to its end, once it has `count` records; keys and values are decoded.

    As any program can: confluent-kafka's own consumer, none of our code in it.
    """
    decode = AvroDeserializer(SchemaRegistryClient({"url": stack.registry_url}))
    messages = read_bytes(stack, topic, count=count)
    for message in messages:
        message.set_key(decode(message.key(), None))
        message.set_value(decode(message.value(), None))
    return messages


def read_bytes(stack: LocalStack | SharedStack, topic: str, *, count: int = 0) -> list[Any]:
    """Do the same, with keys and values as bytes."""
    consumer = Consumer(
        {
            "bootstrap.servers": stack.bootstrap_servers,
            "group.id": "somebody-else",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "max.partition.fetch.bytes": 10_000_000,
        }
    )
    end = time.monotonic() + PATIENCE_S
    # A topic that no worker has made yet is known without topic partitions.
    while not (partitions := consumer.list_topics(topic, timeout=30).topics[topic].partitions):
        assert time.monotonic() < end, f"there is no topic {topic}"
        time.sleep(0.2)
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
    messages: list[Any] = []
    ended: set[int] = set()
    while len(messages) < count or len(ended) < len(partitions):
        assert time.monotonic() < end, f"{topic} gave {len(messages)} of {count} records"
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is None:
            messages.append(message)
            ended.discard(message.partition())
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            ended.add(message.partition())
    consumer.close()
    return messages
