"""Builds a query as Spark's `DataStreamWriter` does: options, outputs, then `start`.

Nothing is created before `start`, and `start` checks everything before it creates anything.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import structlog

from tidegate.program.logs import start_log
from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.commands.audit import require_stream
from tidegate.spark_consumer.config import SINKS, ConsumerConfig, names_in
from tidegate.spark_consumer.core.sink_names import (
    CHANGELOG,
    CHANGELOG_BY_KEY,
    HISTORY,
    ICEBERG_CHANGELOG,
    ICEBERG_MIRROR,
    MIRROR,
    MIRROR_BY_KEY,
    PARQUET_BY_KEY,
)
from tidegate.spark_consumer.library.query import TidegateQuery
from tidegate.spark_consumer.library.settings import (
    load_settings,
    named_sink,
    require_function,
    require_option,
)
from tidegate.spark_consumer.sinks.append import TRANSACTIONS
from tidegate.spark_consumer.sinks.files.datastream import DATASTREAM_FILES
from tidegate.spark_consumer.sinks.files.parquet import PARQUET, PARQUET_TRANSACTIONS
from tidegate.spark_consumer.sinks.function import (
    BatchChanges,
    BatchFunctionSink,
    FunctionSink,
    Mode,
    ReleasedChanges,
)
from tidegate.spark_consumer.sinks.kafka.ordered_topic import SINK as TOPIC
from tidegate.spark_consumer.sinks.port import Sink
from tidegate.spark_consumer.spark.query import build_query
from tidegate.spark_consumer.spark.requirements import require_session
from tidegate.spark_consumer.spark.standby import require_turn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


TableMode: TypeAlias = Literal["commit", "transaction", "key"]
"""The order mode of a sink of tables or files."""

_MS = {"millisecond": 1, "second": 1_000, "minute": 60_000, "hour": 3_600_000}
_INTERVAL = re.compile(r"\s*(\d+)\s*(millisecond|second|minute|hour)s?\s*")


def stream(
    spark: SparkSession,
    *,
    bootstrap_servers: str,
    registry_url: str,
    prefix: str,
    **options: object,
) -> StreamBuilder:
    """Begin to build a query over the stream of a prefix; `options` are further settings.

    Raises ConfigError for a name that is not a setting.
    """
    builder = StreamBuilder(spark, prefix=prefix)
    return builder.options(
        bootstrap_servers=bootstrap_servers, registry_url=registry_url, **options
    )


class StreamBuilder:
    """A query that is not started yet; each method changes it and returns it.

    One folder holds all tables and the release manifests: `<output>/changelog`, `<output>/mirror`
    and `<output>/_releases`.
    """

    def __init__(self, spark: SparkSession, *, prefix: str) -> None:
        self._spark = spark
        self._options: dict[str, Any] = {"prefix": prefix}
        self._output: str | None = None
        self._sinks: list[str] = []
        self._own: dict[str, Sink] = {}
        self._name = ""

    def __repr__(self) -> str:
        """Name the options without their values: any of them may be a secret."""
        names = ", ".join(sorted(self._options.keys() - {"prefix"}))
        outputs = ", ".join((*self._sinks, *self._own)) or "none"
        return (
            f"<{type(self).__name__} prefix={self._options['prefix']!r}"
            f" output={self._output!r} outputs: {outputs}; options: {names}>"
        )

    def option(self, name: str, value: object) -> Self:
        """Set one setting of the consumer, by the name that docs/reference/settings.md gives it.

        Raises ConfigError for a name that is not a setting, or that a program cannot use.  Values
        are checked by `start`.
        """
        require_option(name)
        if value is None:
            raise ConfigError(
                f"option {name}: there is no value", hint="Give one, or leave the option out"
            )
        if name == "output":
            return self.output(str(value))
        if name == "sinks":
            for sink in names_in(str(value)):
                self._add(sink)
            return self
        self._options[name] = os.fspath(value) if isinstance(value, os.PathLike) else value
        return self

    def options(self, **options: object) -> Self:
        """Set several settings, as `option` does."""
        for name, value in options.items():
            self.option(name, value)
        return self

    def output(self, path: str | os.PathLike[str]) -> Self:
        """Set the folder of all tables and manifests; raises ConfigError for a second one."""
        folder = os.fspath(path).rstrip("/") or os.fspath(path)[:1]
        if self._output not in (None, folder):
            raise ConfigError(
                "a query has one output, which holds all of its tables",
                hint="Give each of changelog and mirror a path in the same folder",
                output=self._output,
                second=folder,
            )
        self._output = folder
        return self

    def changelog(
        self, path: str | os.PathLike[str] | None = None, *, mode: TableMode = "commit"
    ) -> Self:
        """Append every change, in commit order, to `<output>/changelog/<table>`.

        With the mode `transaction` it is appended to one table `<output>/transactions`, with a row
        for each transaction.  With `key` it is appended to `<output>/changelog_by_key/<table>` by
        the batch that reads it, without waiting, in the order of each key.  Several can be asked
        for, by a call for each.  `path` ends in the folder's name; without it, the folder is that
        of `output`.  Raises ConfigError for another path, one of another output, or another mode.
        """
        return self._add(_of_mode(mode, CHANGELOG, TRANSACTIONS, CHANGELOG_BY_KEY), path)

    def mirror(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        history: str | None = None,
        mode: Literal["commit", "key"] = "commit",
    ) -> Self:
        """Keep each table as it was at the watermark, in `<output>/mirror/<table>`.

        With `history="scd2"` every version of each row is kept instead, in
        `<output>/history/<table>`; both can be asked for, by two calls.  `path` ends in `/mirror`,
        or for a history also in `/history`; without it, the folder is that of `output`.  With the
        mode `key` each row has its newest change that was read, without waiting, in
        `<output>/mirror_by_key/<table>`.  Raises ConfigError for another path, one of another
        output, another kind of history, another mode, or a history by key.
        """
        if mode == "key" and history is None:
            return self._add(MIRROR_BY_KEY, path)
        if mode != "commit":
            raise ConfigError(
                "mirror: unknown order mode, or one that a history does not have",
                hint="Use commit, or key without a history; transactions are in the changelog",
                mode=mode,
                history=history,
            )
        if history not in (None, "scd2"):
            raise ConfigError(
                "mirror: unknown kind of history",
                hint='Use history="scd2", or leave it out',
                history=history,
            )
        if history is None:
            return self._add(MIRROR, path)
        return self._add(HISTORY, path, folders=(HISTORY, MIRROR))

    def parquet(
        self, path: str | os.PathLike[str] | None = None, *, mode: TableMode = "commit"
    ) -> Self:
        """Write each release's changes as Parquet files, to `<output>/parquet/<table>/<release>`.

        With the mode `transaction` a row for each transaction is written, to
        `<output>/parquet_transactions/<release>`.  With `key` each batch is written when it is
        read, in the order of each key, to `<output>/parquet_by_key/<table>/<batch>`.  Several can
        be asked for, by a call for each.  `path` ends in the folder's name; without it, the folder
        is that of `output`.  Raises ConfigError for another path, one of another output, or another
        mode.
        """
        return self._add(_of_mode(mode, PARQUET, PARQUET_TRANSACTIONS, PARQUET_BY_KEY), path)

    def datastream_files(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        format: str = "avro",  # noqa: A002 - Spark's name
    ) -> Self:
        """Write each change as an event in a file, in the layout of Google's Datastream.

        Files are `<output>/datastream_files/<object>/yyyy/mm/dd/hh/mm/<file>`; `path` ends in
        `/datastream_files`, and without it the folder is that of `output`.  The format is `avro`,
        `jsonl` or `jsonl.gz`, and checked by `start`.  Raises ConfigError for another path, or one
        of another output.
        """
        self._options["datastream_files_format"] = format
        return self._add(DATASTREAM_FILES, path)

    def iceberg(
        self,
        *,
        changelog: bool = True,
        mirror: bool = True,
        catalog: str = "",
        namespace: str = "",
    ) -> Self:
        """Keep Iceberg tables: every change, and each table as it was at the watermark.

        `catalog` is one that the session has; without it, a Hadoop catalog in `<output>/iceberg`.
        Tables are in `<namespace>_changelog` and `<namespace>_mirror`; without a namespace it is
        the prefix.  Raises ConfigError if neither kind is asked for.
        """
        if not changelog and not mirror:
            raise ConfigError(
                "iceberg: no table is asked for", hint="Leave changelog=True or mirror=True"
            )
        if catalog:
            self._options["iceberg_catalog"] = catalog
        if namespace:
            self._options["iceberg_namespace"] = namespace
        for name in (ICEBERG_CHANGELOG,) * changelog + (ICEBERG_MIRROR,) * mirror:
            self._add(name)
        return self

    def topic(self, name: str, *, order: str = "total", topic_partitions: int = 1) -> Self:
        """Publish every change to one Kafka topic, in commit order, each exactly once.

        With the order `key` it may have several topic partitions, and is in commit order for each
        key.  With the order `transaction` it has one JSON record for each transaction.  It is
        created with `topic_partitions` if it is missing.  Values are checked by `start`.
        """
        self._options |= {
            "ordered_topic": name,
            "ordered_topic_order": order,
            "ordered_topic_partitions": topic_partitions,
        }
        return self._add(TOPIC)

    def for_each_release(
        self,
        function: Callable[[DataFrame, ReleasedChanges], object],
        *,
        name: str = "function",
        mode: Mode = "commit",
        with_empty: bool = False,
    ) -> Self:
        """Call `function(changes, release)` with each release, after the tables have it.

        `changes` is one sorted DataFrame over all tables: a row for each change, or with the mode
        `transaction` one for each transaction.  `release` has `number`, `after`, `through`, `rows`,
        `tables`, and `table(name)` with typed columns.  With `with_empty` it is also called for
        releases without a change, which move the watermark.

        After a kill it is called again with the release that was interrupted: the same number and
        rows.  `name` is kept in the checkpoint; several functions need several names.  An error of
        the function ends the query.  It must not stop the query itself: set a flag instead.

        Raises ConfigError if `function` is not callable, for another mode, or a name that is in
        use.
        """
        require_function(function, "for_each_release")
        return self._add_own(
            FunctionSink(function, spark=self._spark, name=name, mode=mode, with_empty=with_empty),
            "for_each_release",
        )

    def for_each_batch(
        self, function: Callable[[DataFrame, BatchChanges], object], *, name: str = "batches"
    ) -> Self:
        """Call `function(changes, batch)` with the changes of each batch as soon as they are read.

        This is the order mode `key`: it does not wait for the watermark.  The changes of each key
        come in Kafka's order, those of a transaction maybe in several batches.  `changes` is one
        DataFrame over all tables; `batch` has `number`, `query_id`, `rows`, `watermark`, `tables`,
        and `table(name)` with typed columns.

        After a kill it is called again with the batch that was interrupted: the same number and
        rows.  `name` is kept in the checkpoint.  An error of the function ends the query.  It must
        not stop the query itself: set a flag instead.

        Raises ConfigError if `function` is not callable, or for a name that is in use.
        """
        require_function(function, "for_each_batch")
        return self._add_own(BatchFunctionSink(function, name=name), "for_each_batch")

    def sink(self, sink: Sink) -> Self:
        """Write each release to a sink of your own, after the sinks that this builder names.

        The contract is that of `tidegate.Sink`: `write` is called for one release at a time, in
        ascending order, and after a kill again with the release that was interrupted, with the same
        number and rows.  A release is published when `write` has returned.  One that is a
        `tidegate.BatchSink` also takes each batch, before its changes are released.  The sink's
        `name` is kept in the checkpoint.

        Raises ConfigError for an object that lacks a part of the port, or a name that is in use.
        """
        return self._add_own(named_sink(sink), "sink")

    def catalog(self, schema: str) -> Self:
        """Register the tables in the session's catalog, in `<schema>` or `<catalog>.<schema>`.

        A mirror is `<schema>.<table>`, a changelog `<schema>_changelog.<table>` and a history
        `<schema>_history.<table>`; the schemas are created.  `start` raises ConfigError for a name
        that another table has, and a table that comes later ends the query with it.
        """
        return self.option("catalog_schema", schema)

    def trigger(
        self,
        *,
        processingTime: str | None = None,  # noqa: N803 - Spark's name
        **others: object,
    ) -> Self:
        """Set the time between the starts of batches, such as "2 seconds".

        Raises ConfigError for any other trigger: a change is released when later records prove that
        it is due, so a query reads on until it is stopped.
        """
        interval = _INTERVAL.fullmatch(processingTime or "")
        if others or interval is None:
            message = "trigger: not a processing time"
            hint = (
                'Use processingTime="2 seconds" (milliseconds, seconds, minutes, hours); for a run'
                " that ends by itself there is `tidegate-consumer run --until caught-up`"
            )
            given = {"processingTime": processingTime, **others}
            raise ConfigError(message, hint=hint, given=given)
        self._options["trigger_interval_ms"] = int(interval[1]) * _MS[interval[2]]
        return self

    def queryName(self, name: str) -> Self:  # noqa: N802 - Spark's name
        """Set the name that Spark knows the query by; `tidegate-<prefix>` without it."""
        self._name = name
        return self

    def start(self, checkpoint: str | os.PathLike[str] | None = None) -> TidegateQuery:
        """Start the query, or continue the query of this checkpoint; returns when it runs.

        Raises ConfigError, before anything is created, for settings that cannot be used, a session
        that lacks something, a stream that does not exist, and a checkpoint that another run works
        on; UnreachableError for a service that does not answer; CheckpointMismatch if the
        checkpoint's query has sinks that this one lacks.

        A query of a program is not restarted automatically, as `tidegate-consumer run` does:

        - CheckpointConflict (a replaced run has written late), here or as the error of QueryFailed:
          call `start` again; nothing is lost.
        - `bytes_per_batch_max` is applied when a query starts, from the average size of a change so
          far: where changes become far wider or narrower, stop the query and start it again.

        Where structlog is not configured, log lines of the level `log_level` ("warning") and above
        go to standard error.
        """
        config = self._settings(checkpoint)
        name = self._name or f"tidegate-{config.prefix}"
        require_session(self._spark)
        if any(query.name == name for query in self._spark.streams.active):
            raise ConfigError(
                "a query of this name runs in this session",
                hint="Stop it first, or give this one another name with queryName()",
                name=name,
            )
        if not structlog.is_configured():
            start_log(config)
        require_stream(config)
        if not config.take_over:
            require_turn(Storage(self._spark, f"{config.checkpoint}/gate"))
        sinks = tuple(self._own.values())
        return TidegateQuery(build_query(self._spark, config, sinks=sinks, query_name=name))

    def _add_own(self, sink: Sink, method: str) -> Self:
        if not sink.name or sink.name in SINKS or sink.name in self._own:
            raise ConfigError(
                f"{method}: the name is empty or in use",
                hint="Give each function and each sink a name of its own",
                name=sink.name,
            )
        self._own[sink.name] = sink
        return self

    def _add(
        self,
        sink: str,
        path: str | os.PathLike[str] | None = None,
        *,
        folders: tuple[str, ...] = (),
    ) -> Self:
        if path is not None:
            folder, _, last = os.fspath(path).rstrip("/").rpartition("/")
            if last not in (folders or (sink,)):
                raise ConfigError(
                    f"{sink}: the path must end in /{sink}",
                    hint=f"Tables are in <output>/{sink}/<table>: give <output>/{sink}",
                    path=os.fspath(path),
                )
            self.output(folder or ("/" if os.fspath(path).startswith("/") else "."))
        if sink not in self._sinks:
            self._sinks.append(sink)
        return self

    def _settings(self, checkpoint: str | os.PathLike[str] | None) -> ConsumerConfig:
        given = dict(self._options)
        if checkpoint is not None:
            given["checkpoint"] = os.fspath(checkpoint)
        if "checkpoint" not in given:
            raise ConfigError(
                "checkpoint: is not set", hint='Give one: start(checkpoint="<folder>")'
            )
        if not self._sinks and not self._own:
            raise ConfigError(
                "the query has no output",
                hint="Call changelog(), mirror(), topic(…) or for_each_release(…) before start()",
            )
        if self._output is None:
            raise ConfigError(
                "output: is not set",
                hint=(
                    "Call output(folder), or give a path such as changelog(folder + '/changelog');"
                    " the release manifests are there too"
                ),
            )
        # Settings name one table sink at least; a program may have functions alone.
        sinks = ",".join(self._sinks)
        config = load_settings({**given, "output": self._output, "sinks": sinks or CHANGELOG})
        return config if sinks else config.model_copy(update={"sinks": ""})


def _of_mode(mode: str, by_change: str, by_transaction: str, by_key: str) -> str:
    """Return the sink of an order mode; raises ConfigError for another mode."""
    sinks = {"commit": by_change, "transaction": by_transaction, "key": by_key}
    if mode in sinks:
        return sinks[mode]
    raise ConfigError(
        f"{by_change}: unknown order mode", hint=f"Use one of {', '.join(sinks)}", mode=mode
    )
