"""What the tests of one process share: a Kafka broker, a schema registry, a Spark session.

Tests that stop or configure the broker start one of their own, or take the one that may be killed.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest
from pyspark import java_gateway

from tests.integration.shared_stack import SharedStack, open_shared_stack
from tidegate.local_stack.config import load_config
from tidegate.local_stack.parts.installed_java import find_java
from tidegate.local_stack.parts.jvm_parts import fetch_jvm_parts, fetched_jvm_parts
from tidegate.local_stack.parts.kafka_broker import KafkaBroker
from tidegate.local_stack.parts.process import choose_ports
from tidegate.local_stack.parts.programs import quick_start
from tidegate.local_stack.parts.stack import LocalStack
from tidegate.spark_consumer.library.session import session


@pytest.fixture(scope="session")
def kafka_and_registry(tmp_path_factory):
    """A stack without a simulator, which nothing kills, for all tests of this process."""
    config = load_config(data_dir=tmp_path_factory.mktemp("shared"))
    with LocalStack(config, with_simulator=False, is_patient=True) as stack:
        yield stack


@pytest.fixture(scope="session")
def address(kafka_and_registry) -> str:
    """The shared broker's address."""
    return kafka_and_registry.bootstrap_servers


@pytest.fixture
def shared_stack(kafka_and_registry, tmp_path) -> Iterator[SharedStack]:
    """The shared broker and registry, with a simulator, a prefix and a folder of the test's own."""
    with open_shared_stack(kafka_and_registry, tmp_path) as opened:
        yield opened


@pytest.fixture(scope="session")
def mortal_broker(tmp_path_factory) -> Iterator[KafkaBroker]:
    """A broker that tests kill, stop and start again."""
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
        yield broker
    finally:
        broker.stop()


@pytest.fixture(scope="session")
def spark(tmp_path_factory) -> Iterator[Any]:
    """The session in which all queries of this process run, as a program of a user has it."""
    parts = fetched_jvm_parts() or fetch_jvm_parts(find_java())
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    folder = tmp_path_factory.mktemp("spark")
    with patch.object(java_gateway, "Popen", _without_forking):
        started = session(
            "tidegate-tests",
            jars=",".join(str(jar) for jar in parts.spark_jars),
            master="local[2]",
            **{
                "spark.driver.extraJavaOptions": quick_start(),
                "spark.sql.warehouse.dir": str(folder / "warehouse"),
                "spark.local.dir": str(folder / "local"),
            },
        )
    yield started
    started.stop()


def _without_forking(
    command: list[str], *, preexec_fn: Any, **options: Any
) -> subprocess.Popen[bytes]:
    """Start Java; a child of this process that ran Python first would meet gRPC's threads."""
    return subprocess.Popen(command, **options)
