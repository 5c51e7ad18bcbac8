"""`tidegate-consumer audit`: prove an output complete against the stream's completion markers.

It reads manifests, changelogs and the progress topic, and writes nothing; a run may continue at the
same time.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rich.table import Table
from rich.text import Text

from tidegate.lineage.subscription import Subscription
from tidegate.program.java import QUICK_START
from tidegate.program.registry_http import HttpSchemaRegistry
from tidegate.program.stream_start import require_topic_names
from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.commands.locations import local_folder, require_release
from tidegate.spark_consumer.commands.py4j_log import silence_py4j
from tidegate.spark_consumer.config import ConsumerConfig
from tidegate.spark_consumer.core.proof import AuditReport, readable
from tidegate.spark_consumer.core.sink_names import CHANGELOG
from tidegate.spark_consumer.kafka.java_options import java_options
from tidegate.spark_consumer.kafka.topics import find_missing_topics
from tidegate.spark_consumer.spark.requirements import require_spark

_SMALL_BYTES = 64 * 1024**2
"""The files of all changelogs together: these are read in seconds."""


def audit(config: ConsumerConfig, *, step: Callable[[str], None]) -> AuditReport:
    """Audit the output that the settings name; `step` is called with the name of each step.

    Raises ConfigError for an output that cannot be audited, and UnreachableError for a service that
    does not answer.
    """
    silence_py4j()
    require_spark(jars=config.jars)
    require_release(config)
    step("Kafka and schema registry")
    registry = require_stream(config)
    step("Spark")
    from tidegate.spark_consumer.spark.audit.auditing import audit_stream  # noqa: PLC0415 - pyspark, checked above
    from tidegate.spark_consumer.spark.session import session_of  # noqa: PLC0415 - it too

    spark = session_of(_for_its_size(config))
    try:
        return audit_stream(spark, config, schema_of=registry.schema, step=step)
    finally:
        with suppress(Exception):
            spark.stop()


def _for_its_size(config: ConsumerConfig) -> ConsumerConfig:
    """Return settings with a Java that starts fast, where little is read and none is asked for."""
    output = local_folder(config.output)
    if config.java_options or output is None:
        return config
    size = 0
    for file in (output / CHANGELOG).rglob("*.parquet"):
        with suppress(OSError):  # a run may delete files of old versions in between
            size += file.stat().st_size
        if size > _SMALL_BYTES:
            return config
    return config.model_copy(update={"java_options": shlex.join(QUICK_START)})


def tables_of(report: AuditReport) -> list[Table]:
    """Return the report for people: its figures, and the mismatches if there are some."""
    figures = Table("figure", "value", title="proved" if report.is_proved else "NOT proved")
    for name, value in report.readable_figures.items():
        figures.add_row(name, _text(value))
    if report.is_proved:
        return [figures]
    mismatches = Table("what", "which", "fault", "expected", "found", title="mismatches")
    for mismatch in report.mismatches:
        fields = (
            _text(readable(mismatch.subject)),
            mismatch.fault,
            _text(readable(mismatch.expected)),
            _text(readable(mismatch.found)),
        )
        mismatches.add_row(mismatch.what, *fields)
    if report.mismatches_not_listed:
        mismatches.add_row("…", f"{report.mismatches_not_listed} more")
    return [figures, mismatches]


def _text(value: Any) -> Text:
    """Return lines in which rich interprets no markup, which a token may hold; cut to width."""
    return Text("\n".join(_lines(value)), no_wrap=True, overflow="ellipsis")


def _lines(value: Any) -> list[str]:
    match value:
        case dict():
            return [f"{name}: {member}" for name, member in value.items()]
        case list():
            return [line for item in value for line in _lines(item)] or ["none"]
        case _:
            return [str(value)]


def require_stream(config: ConsumerConfig) -> HttpSchemaRegistry:
    """Return the registry of a stream that exists; blocks for seconds, and does not retry.

    Raises ConfigError for a stream without progress topic or with other topic names, and for Kafka
    options that Spark's client does not have; UnreachableError for a service that does not answer.
    """
    options = config.kafka_client_options()
    java_options(config.given_kafka_options(), login=config.kafka_login)
    registry = HttpSchemaRegistry(config.registry_url, options=config.registry_client_options())
    registry.require_reachable()
    names = config.topic_names
    if find_missing_topics(config.bootstrap_servers, Subscription(names), options=options):
        raise ConfigError(
            "there is no progress topic",
            hint=(
                "Check the setting prefix: the first worker of a stream creates its progress topic"
            ),
            topic=names.progress,
        )
    require_topic_names(config, registry.schema)
    return registry
