"""The sessions of a query: the program's settings, except those that change stored values.

The sinks write in a copy of the program's session, so nothing that they set for a statement
(`userMetadata`, `txnVersion`) reaches a statement of the program's, and no setting of the program's
changes a stored value.  Batches run in a copy that Spark itself makes for each streaming query; it
gets the same settings, and the program's functions and sinks get theirs back.

Settings that the program changes later, such as new credentials (`fs.…`), are copied batch by
batch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from tidegate.spark_consumer.sinks.port import Sink
from tidegate.spark_consumer.sinks.sql import session_settings, set_all

_DELTA = "spark.databricks.delta"

STORED_AS: Mapping[str, str | None] = {
    # Times: microseconds of the proleptic Gregorian calendar, in UTC, whichever engine wrote them.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96AsTimestamp": "true",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96TimestampConversion": "false",
    "spark.sql.avro.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    # Other values, as Parquet has them.
    "spark.sql.parquet.binaryAsString": "false",
    "spark.sql.parquet.writeLegacyFormat": "false",
    # A file that cannot be read is an error: a MERGE would go on without its rows.
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    # Casts, functions, names and literals of the statements of the sinks.
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.ansi.enforceReservedKeywords": "false",
    "spark.sql.caseSensitive": "false",
    "spark.sql.function.concatBinaryAsString": "false",
    "spark.sql.jsonGenerator.ignoreNullFields": "true",
    "spark.sql.legacy.codingErrorAction": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.parser.quotedRegexColumnNames": "false",
    "spark.sql.sources.partitionOverwriteMode": "STATIC",
    "spark.sql.storeAssignmentPolicy": "ANSI",
    # Rows that a sink has folded come as Arrow's.  0 is no limit for Spark; pyspark refuses it.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    # Which columns and files a table gets, and what its commits say.
    f"{_DELTA}.autoCompact.enabled": "false",
    f"{_DELTA}.history.metricsEnabled": "true",
    f"{_DELTA}.optimizeWrite.enabled": "false",
    f"{_DELTA}.schema.autoMerge.enabled": "false",
    f"{_DELTA}.write.txnVersion.autoReset.enabled": "false",
    # Those of a program's own statements.
    f"{_DELTA}.commitInfo.userMetadata": None,
    f"{_DELTA}.write.txnAppId": None,
    f"{_DELTA}.write.txnVersion": None,
    "spark.wap.branch": None,
    "spark.wap.id": None,
}
"""Settings of every session that a query writes in; None: not set."""

_DEFAULTS_OF_TABLES = f"{_DELTA}.properties.defaults."
"""Properties of all new tables of a session, which delta-rs does not know: not set either."""


class QuerySession:
    """The session of one query's sinks, and the settings of its batches."""

    def __init__(self, spark: SparkSession, *, programs: Collection[str] = ()) -> None:
        """Copy the program's session; `programs` are the names of its sinks and functions."""
        self._java: Any = spark._jsparkSession  # noqa: SLF001 - pyspark can make a session without settings only
        self._java_settings, self._settings = self._java.conf().getAll(), spark.conf.getAll
        self.spark = SparkSession(spark.sparkContext, self._java.cloneSession())
        """The copy."""
        _set_stored_as(self.spark)
        self._program = spark
        self._programs = frozenset(programs)
        self._batches: SparkSession | None = None
        self._former: Mapping[str, str | None] = {}

    def whole_schema(self, schema: str) -> str:
        """Return the name of a schema of the program's session for the copy; "" stays "".

        Spark copies the current schema of a session, but not its catalog.  The copy must not use
        that catalog either: Delta creates a table at a path in the current catalog.
        """
        if not schema or "." in schema:
            return schema
        catalog = self._program.catalog.currentCatalog()
        is_same = catalog == self.spark.catalog.currentCatalog()
        return schema if is_same else f"{catalog}.{schema}"

    def begin_batch(self, spark: SparkSession) -> None:
        """Set the settings in the session of a batch's frame, the same one for the whole query.

        Settings that the program has changed since the last batch are set in both copies, except
        those that change stored values, or that Spark or a sink has set differently there.
        """
        if self._batches is None:
            self._former = _set_stored_as(spark)
        self._batches = spark
        self._follow(spark)

    def _follow(self, batches: SparkSession) -> None:
        java_settings = self._java.conf().getAll()
        if java_settings.equals(self._java_settings):  # a hundred times faster than to fetch them
            return
        before, now = self._settings, self._program.conf.getAll
        for name in before.keys() | now.keys():
            former, value = before.get(name), now.get(name)
            if former == value or name in STORED_AS or name.startswith(_DEFAULTS_OF_TABLES):
                continue
            for copy in (self.spark, batches):
                if copy.conf.get(name, None) == former:
                    set_all(copy, {name: value})
        self._java_settings, self._settings = java_settings, now

    @contextmanager
    def settings_of(self, sink: Sink) -> Iterator[None]:
        """Give a sink of the program's its own settings back within the block."""
        if self._batches is None or sink.name not in self._programs:
            yield
            return
        with session_settings(self._batches, self._former):
            yield


def _set_stored_as(spark: SparkSession) -> Mapping[str, str | None]:
    """Set `STORED_AS` in a session; return the values before."""
    wanted = {**STORED_AS, **dict.fromkeys(_defaults_of_tables(spark))}
    former = {name: spark.conf.get(name, None) for name in wanted}
    set_all(spark, wanted)
    return former


def _defaults_of_tables(spark: SparkSession) -> list[str]:
    return [name for name in spark.conf.getAll if name.startswith(_DEFAULTS_OF_TABLES)]
