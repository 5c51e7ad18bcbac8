"""`audit` on a session: an output against its completion markers, its manifests and itself.

Both sides are summed and joined where the rows are; what comes to the driver is counts and the
first mismatches.  The newest manifest is read first and the progress topic after it, so that the
markers of everything that was released are there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from delta.tables import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidegate.schemas.errors import ConfigError, UnreachableError
from tidegate.schemas.output_form import left_out
from tidegate.schemas.topics import TopicNames
from tidegate.spark_consumer.batch.rows import topic_rows
from tidegate.spark_consumer.batch.transaction_sums import sums_by_transaction
from tidegate.spark_consumer.checkpoint.gate_files import newest_state
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.config import ConsumerConfig
from tidegate.spark_consumer.core.batch_state import BEFORE_EVERYTHING_US, State
from tidegate.spark_consumer.core.proof import AuditReport, Fault, Findings, Mismatch
from tidegate.spark_consumer.core.sink_names import CHANGELOG
from tidegate.spark_consumer.kafka.java_options import java_options
from tidegate.spark_consumer.kafka.topics import may_exist
from tidegate.spark_consumer.sinks.manifest import MANIFEST_FOLDER, Manifest, newest_manifest
from tidegate.spark_consumer.sinks.merge.scope import leaves_changes_out
from tidegate.spark_consumer.sinks.sql import NOT_COMPILED, session_settings
from tidegate.spark_consumer.spark.audit.judgement import (
    AuditScope,
    judge_origins,
    judge_releases,
    judge_transactions,
    kept,
)
from tidegate.spark_consumer.spark.audit.markers import (
    decoded_records,
    marker_records,
    read_markers,
    under_their_tables,
)
from tidegate.spark_consumer.spark.audit.rows import read_rows, sums_by_release
from tidegate.spark_consumer.spark.requirements import hide_logins, require_login, require_session

_LATE = "late"
_CAUSE_MAX = 300
_ROWS_OF_A_TASK = 250_000
_TASKS_MAX = 2_000

_MANIFEST_COLUMNS = "release long, after_us long, through_us long, rows long"


def audit_stream(
    spark: SparkSession,
    config: ConsumerConfig,
    *,
    schema_of: Callable[[int], Mapping[str, Any]],
    step: Callable[[str], None],
) -> AuditReport:
    """Compare the output that the settings name with their stream, as `audit_output` does.

    The progress topic exists.  Raises ConfigError for a session that lacks something too.
    """
    require_session(spark)
    java = java_options(config.given_kafka_options(), login=config.kafka_login)
    require_login(spark, config)
    hide_logins(spark)
    names, options = config.topic_names, config.kafka_client_options()
    servers = config.bootstrap_servers
    return audit_output(
        spark,
        config.output,
        checkpoint=config.checkpoint,
        names=names,
        progress=lambda: topic_rows(spark, names.progress, bootstrap_servers=servers, options=java),
        schema_of=schema_of,
        has_dead_letters=may_exist(names.dead_letter, bootstrap_servers=servers, options=options),
        step=step,
    )


def audit_output(
    spark: SparkSession,
    output: str,
    *,
    checkpoint: str,
    names: TopicNames,
    progress: Callable[[], DataFrame],
    schema_of: Callable[[int], Mapping[str, Any]],
    has_dead_letters: bool,
    step: Callable[[str], None],
) -> AuditReport:
    """Compare an output with its stream; writes nothing.

    The checkpoint may be missing: it only shows how far the watermark is above the newest release.
    `progress` makes a frame of the progress topic (`key`, `value`, `offset`); `has_dead_letters`
    says that changes were parked; `step` is called with the name of each step before the step.
    Raises ConfigError for an output without a release and for a topic without a stream, and
    UnreachableError where Spark fails.
    """
    step("manifests")
    folder = Storage(spark, output)
    # The state before the manifest: a run may write in between.
    state = newest_state(Storage(spark, f"{checkpoint}/gate"))
    manifest = newest_manifest(folder, watermark_us=sys.maxsize)
    if manifest is None:
        raise ConfigError(
            "the output has no release manifest", hint="Check --output", output=output
        )
    through_us = released_through_us(manifest, state)
    paths = {
        names.data(table): folder.path(sinks[CHANGELOG].path)
        for table, sinks in manifest.tables.items()
        if CHANGELOG in sinks
    }
    manifests = _manifests(spark, folder, release_max=manifest.release)
    with _named_failures(), ExitStack() as exits:
        changes = _changes(manifests)
        is_small = changes <= _ROWS_OF_A_TASK
        exits.enter_context(session_settings(spark, _settings(spark, changes)))
        read, missing = read_rows(spark, paths, release_max=manifest.release)
        if read is None:
            raise ConfigError("the output has no changelog", hint="Check --output", output=output)
        # Many rows are read three times: to keep them would need the room of the output.
        rows = exits.enter_context(kept(read, is_small=True)) if is_small else read
        step("completion markers")
        with (
            kept(marker_records(progress()), is_small=is_small) as records,
            kept(decoded_records(records, schema_of), is_small=is_small) as bodies,
        ):
            markers = read_markers(bodies)
            names.require_recorded(markers.filters)
            may_lack = has_dead_letters or _leaves_out(manifest, markers.filters)
            begin_us = manifest.complete_from_us
            scope = AuditScope(
                BEFORE_EVERYTHING_US if begin_us is None else begin_us,
                through_us,
                may_lack,
                tuple(gap for gap in markers.gaps if gap.from_us <= through_us),
                is_small,
            )
            step("stream partitions")
            of_tables = under_their_tables(markers, names, manifest.tables)
            stream_partitions, without = judge_origins(of_tables, rows, scope)
        step("transactions")
        transactions = judge_transactions(sums_by_transaction(rows), scope)
        step("releases")
        releases, changes = judge_releases(sums_by_release(rows), manifests, is_small=is_small)
        late = _count(spark, folder.path(_LATE))
    return AuditReport(
        release=manifest.release,
        through_us=through_us,
        complete_from_us=manifest.complete_from_us,
        changes=changes,
        late_changes=late,
        stream_partitions=stream_partitions,
        transactions=transactions,
        releases=releases,
        tables=_missing(missing),
        without_checksum=without["checksum"],
        without_value_bytes=without["value_bytes"],
        gaps=scope.gaps,
    )


def released_through_us(manifest: Manifest, state: State | None) -> int:
    """Return up to which commit time everything is released: a watermark makes no empty release."""
    is_its = state is not None and state.query_id == manifest.query_id
    if state is None or not is_its or state.next_release > manifest.release + 1:
        return manifest.through_us
    return max(manifest.through_us, state.watermark_us)


@contextmanager
def _named_failures() -> Iterator[None]:
    """Report what Spark raises as one line, with an exit code that is not that of a mismatch."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        message = "Spark did not finish the audit"
        hint = "Start it again; if it fails again, the cause is in what it read"
        text = str(getattr(error, "java_exception", error)).strip()
        cause = text.partition("\n")[0][:_CAUSE_MAX]
        raise UnreachableError(message, hint=hint, cause=cause) from error


def _leaves_out(manifest: Manifest, filters: tuple[str, ...]) -> bool:
    """Whether changes are left out, as `StreamStarted.filters` or value schemas have said."""
    return bool(left_out(filters)) or any(
        leaves_changes_out(version.left_out)
        for sinks in manifest.tables.values()
        for version in sinks.values()
    )


def _manifests(spark: SparkSession, folder: Storage, *, release_max: int) -> DataFrame:
    reader = spark.read.schema(_MANIFEST_COLUMNS).option("multiLine", "true")
    # A run may delete old manifests in the meantime.
    manifests = reader.option("ignoreMissingFiles", "true").json(folder.path(MANIFEST_FOLDER))
    return manifests.where(F.col("release") <= release_max)


def _changes(manifests: DataFrame) -> int:
    """Return how many changes all releases have."""
    return manifests.agg(F.sum("rows").alias("rows")).collect()[0]["rows"] or 0


def _settings(spark: SparkSession, changes: int) -> Mapping[str, str]:
    """Return settings for the number of changes: a session has 2 shuffle partitions, or 200."""
    if changes <= _ROWS_OF_A_TASK:
        return {"spark.sql.shuffle.partitions": "1", **NOT_COMPILED}
    least = spark.sparkContext.defaultParallelism
    tasks = min(max(least, changes // _ROWS_OF_A_TASK), _TASKS_MAX)
    return {"spark.sql.shuffle.partitions": str(tasks)}


def _count(spark: SparkSession, path: str) -> int:
    if not DeltaTable.isDeltaTable(spark, path):
        return 0
    return spark.read.format("delta").load(path).count()


def _missing(topics: tuple[str, ...]) -> Findings:
    faults = tuple(Mismatch("table", {"topic": topic}, Fault.NO_TABLE) for topic in topics)
    return Findings({}, faults, len(faults))
