"""`audit` for a program that has a session."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tidegate.spark_consumer.commands.audit import require_stream
from tidegate.spark_consumer.core.proof import AuditReport
from tidegate.spark_consumer.library.settings import load_settings, require_option
from tidegate.spark_consumer.sinks.delta.catalog import output_of
from tidegate.spark_consumer.spark.audit.auditing import audit_stream
from tidegate.spark_consumer.spark.requirements import require_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_CHECKPOINT = "_checkpoint"


def audit(
    spark: SparkSession,
    output: str | os.PathLike[str],
    *,
    bootstrap_servers: str,
    registry_url: str,
    prefix: str,
    checkpoint: str | os.PathLike[str] | None = None,
    **options: object,
) -> AuditReport:
    """Compare an output with the completion markers of its stream; writes nothing.

    The report's `is_proved` says whether everything is there, `mismatches` what is not, and
    `content()` is all of it, ready for JSON.  `output` is a folder, or the schema that a query
    registered the tables in (`catalog_schema`).  A query may run in the meantime.  `checkpoint`
    shows how far the watermark is beyond the newest release; it may be missing, and is
    `<output>/_checkpoint` unless it is given.  `options` are settings, such as `kafka_options`.

    Raises ConfigError for settings, a session, a stream or an output that cannot be audited, and
    UnreachableError for a service that does not answer.
    """
    for name in options:
        require_option(name)
    place = os.fspath(output)
    config = load_settings(
        {
            **options,
            "bootstrap_servers": bootstrap_servers,
            "registry_url": registry_url,
            "prefix": prefix,
            "output": place,
            "checkpoint": _checkpoint_of(place) if checkpoint is None else os.fspath(checkpoint),
        }
    )
    require_session(spark)
    folder = output_of(spark, place)
    if folder != place:
        at = _checkpoint_of(folder) if checkpoint is None else config.checkpoint
        config = config.model_copy(update={"output": folder, "checkpoint": at})
    registry = require_stream(config)
    return audit_stream(spark, config, schema_of=registry.schema, step=lambda _: None)


def _checkpoint_of(folder: str) -> str:
    return f"{folder.rstrip('/')}/{_CHECKPOINT}"
