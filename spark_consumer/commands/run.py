"""`tidegate-consumer run`: the gate, until it is stopped or has caught up.

Missing requirements are found before Spark starts: Spark itself waits long and reports them in
stack traces.
"""

from __future__ import annotations

import os
import signal
import threading

from tidegate.lineage.subscription import Subscription
from tidegate.program.open_lineage import reported
from tidegate.program.registry_http import HttpSchemaRegistry
from tidegate.program.status_server import Health, serve_status
from tidegate.program.stream_start import require_topic_names
from tidegate.spark_consumer.commands.locations import require_locations
from tidegate.spark_consumer.commands.py4j_log import silence_py4j
from tidegate.spark_consumer.config import ConsumerConfig
from tidegate.spark_consumer.kafka.java_options import java_options
from tidegate.spark_consumer.kafka.topics import wait_for_topics
from tidegate.spark_consumer.metrics import consumer_metrics
from tidegate.spark_consumer.spark.requirements import (
    is_submitted,
    require_iceberg_package,
    require_spark,
)

_LOOK_EVERY_S = 1.0


def run(config: ConsumerConfig, *, begun_us: int) -> None:
    """Run until SIGTERM or SIGINT, or until the end that the settings ask for.

    `begun_us` is when the program was started.  Raises the error that made the run fail.
    """
    silence_py4j()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    if is_submitted():
        threading.Thread(target=_stop_with_parent, args=(stop, os.getppid()), daemon=True).start()
    metrics, health = consumer_metrics(), Health()
    with (
        serve_status(config, registry=metrics.registry, health=health),
        reported(config, program="tidegate-consumer") as lineage,
    ):
        if not prepare(config, stop=stop, health=health):
            return
        from tidegate.spark_consumer.spark import query  # noqa: PLC0415 - pyspark, checked above

        query.run(
            config, stop=stop, begun_us=begun_us, metrics=metrics, health=health, lineage=lineage
        )


def _stop_with_parent(stop: threading.Event, parent: int, *, wait_s: float = _LOOK_EVERY_S) -> None:
    """Set `stop` when the parent process has ended.

    SIGTERM to spark-submit ends its JVM, which does not pass it on; before the session exists,
    nothing in the JVM waits for this process.
    """
    while not stop.wait(wait_s):
        if os.getppid() != parent:
            stop.set()


def prepare(config: ConsumerConfig, *, stop: threading.Event, health: Health) -> bool:
    """Check what a run needs and wait for its topics; return False if the run was stopped.

    Raises ConfigError or UnreachableError for the first thing that is missing.
    """
    require_spark(jars=config.jars)
    if config.has_iceberg:
        require_iceberg_package(packages=config.session_packages, jars=config.jars)
    require_locations(config)
    # Options that cannot be translated are an error now, before Spark starts.
    java_options(config.given_kafka_options(), login=config.kafka_login)
    registry_options = config.registry_client_options()
    registry = HttpSchemaRegistry(config.registry_url, options=registry_options)
    registry.require_reachable()
    is_ready = wait_for_topics(
        config.bootstrap_servers,
        Subscription(config.topic_names),
        stop=stop,
        health=health,
        options=config.kafka_client_options(),
    )
    if is_ready:
        require_topic_names(config, registry.schema)
    return is_ready
