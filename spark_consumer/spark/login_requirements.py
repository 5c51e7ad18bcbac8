"""What a login to Kafka needs of a session: the classes that its options name.

Without one Spark would start, wait for Kafka, and fail in a stack trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import structlog

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.config import LEFT_OUT_PACKAGES, LOGIN_PACKAGES, ConsumerConfig
from tidegate.spark_consumer.kafka.java_options import java_options
from tidegate.spark_consumer.kafka_options import one_sided

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_MODULE = "sasl.jaas.config"
_HANDLERS = ("sasl.login.callback.handler.class", "sasl.client.callback.handler.class")
_ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
_ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
_PRESENT = "org.apache.kafka."
"""What Kafka's client itself brings."""


def require_login(spark: SparkSession, config: ConsumerConfig) -> None:
    """Raise ConfigError for a session that lacks a class of the login.

    Options that only one of the two Kafka clients gets are a line in the log.
    """
    java, native = one_sided(config.kafka_options)
    if java or native:
        structlog.get_logger("tidegate.spark_consumer").info(
            "Kafka options of one client", java=java, librdkafka=native
        )
    options = java_options(config.given_kafka_options(), login=config.kafka_login)
    _allow_endpoint(spark, options)
    needed = [name for name in login_classes(options) if not name.startswith(_PRESENT)]
    if not needed:
        return
    loads = spark.sparkContext._jvm.org.apache.spark.util.Utils.classIsLoadable  # type: ignore[union-attr]  # noqa: SLF001 - no public call asks this
    for name in needed:
        if not loads(name):
            raise ConfigError(
                f"the Spark session lacks the class {name}, with which Spark logs in to Kafka",
                hint=_hint(name),
            )


def _allow_endpoint(spark: SparkSession, options: Mapping[str, str]) -> None:
    """Let the driver's JVM ask the token endpoint: Kafka's client from 3.9.1 on wants its URL."""
    url = options.get(_ENDPOINT)
    if url is None:
        return
    system = spark.sparkContext._jvm.java.lang.System  # type: ignore[union-attr]  # noqa: SLF001 - pyspark has no way of its own
    allowed = list(filter(None, (system.getProperty(_ALLOWED) or "").split(",")))
    if url not in allowed:
        system.setProperty(_ALLOWED, ",".join([*allowed, url]))


def login_classes(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the classes that a login's options name, those of its handlers first."""
    handlers = [options[name] for name in _HANDLERS if name in options]
    return (*handlers, *options.get(_MODULE, "").split()[:1])


def _hint(name: str) -> str:
    groups = {one.partition(":")[0]: one for one in LOGIN_PACKAGES.values()}
    package = next((groups[group] for group in groups if name.startswith(group)), None)
    if package is None:
        return "Stop it and start it with the jar of the class among spark.jars"
    return (
        f"Stop it and start it with {package} among spark.jars.packages, and "
        f"{LEFT_OUT_PACKAGES} in spark.jars.excludes"
    )
