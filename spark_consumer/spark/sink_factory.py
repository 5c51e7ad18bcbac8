"""Makes the sinks that the settings name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from tidegate.program.kafka_clients import KafkaClientLog
from tidegate.program.registry_http import HttpSchemaRegistry
from tidegate.program.stream_start import recorded_start
from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.config import ConsumerConfig, names_in
from tidegate.spark_consumer.core.batch_state import State
from tidegate.spark_consumer.core.cadence import (
    CHANGELOG,
    CHANGELOG_BY_KEY,
    HISTORY,
    ICEBERG_CHANGELOG,
    ICEBERG_MIRROR,
    MIRROR,
    MIRROR_BY_KEY,
    PARQUET_BY_KEY,
)
from tidegate.spark_consumer.core.plan import Plan
from tidegate.spark_consumer.core.sink_set import first_release
from tidegate.spark_consumer.sinks.delta.catalog import SCHEMAS, CatalogNames, named
from tidegate.spark_consumer.sinks.delta.changelog import DeltaChangelogSink
from tidegate.spark_consumer.sinks.delta.changelog_by_key import DeltaChangelogByKeySink
from tidegate.spark_consumer.sinks.delta.direct.way import DirectWay
from tidegate.spark_consumer.sinks.delta.layout import TableLayout
from tidegate.spark_consumer.sinks.delta.transactions_sink import (
    TRANSACTIONS,
    DeltaTransactionsSink,
)
from tidegate.spark_consumer.sinks.files.datastream import (
    DATASTREAM_FILES,
    DatastreamFilesSink,
    FileSettings,
)
from tidegate.spark_consumer.sinks.files.events import FileFormat, FileLimits
from tidegate.spark_consumer.sinks.iceberg.changelog import IcebergChangelogSink
from tidegate.spark_consumer.sinks.iceberg.mirror import IcebergMirrorSink
from tidegate.spark_consumer.sinks.iceberg.place import IcebergPlace
from tidegate.spark_consumer.sinks.kafka.ordered_topic import SINK as TOPIC
from tidegate.spark_consumer.sinks.kafka.ordered_topic import OrderedTopicSink, TopicOrder
from tidegate.spark_consumer.sinks.kafka.output_topic import KafkaOutputTopic
from tidegate.spark_consumer.sinks.merge.by_key import DeltaMirrorByKeySink
from tidegate.spark_consumer.sinks.merge.history import DeltaHistorySink
from tidegate.spark_consumer.sinks.merge.mirror import DeltaMirrorSink
from tidegate.spark_consumer.sinks.merge.versions import HistoryColumns
from tidegate.spark_consumer.sinks.parquet import PARQUET, ParquetSink
from tidegate.spark_consumer.sinks.parquet_by_key import ParquetByKeySink
from tidegate.spark_consumer.sinks.parquet_transactions import (
    PARQUET_TRANSACTIONS,
    ParquetTransactionsSink,
)
from tidegate.spark_consumer.sinks.port import Sink
from tidegate.spark_consumer.sinks.released_frame import transaction_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def all_names(config: ConsumerConfig, further: Sequence[Sink] = ()) -> tuple[str, ...]:
    """Return the names of the sinks of the settings, then those of the program's own.

    Raises ConfigError if two have one name.
    """
    names = (*config.sink_names, *(sink.name for sink in further))
    if len(set(names)) < len(names):
        raise ConfigError(
            "two sinks of a query have the same name",
            hint="Give each sink a name of its own",
            names=names,
        )
    return names


def make_sinks(
    spark: SparkSession,
    config: ConsumerConfig,
    *,
    output: Storage,
    direct: DirectWay | None,
    state: State | None = None,
    stored: Plan | None = None,
    further: Sequence[Sink] = (),
) -> tuple[Sink, ...]:
    """Return the sinks of the settings, then those of the program's own, in that order.

    `output` is the folder of the tables, `direct` how small releases are written without Spark,
    `state` the newest one of the query, and `stored` the plan of the batch after it, if a former
    run has stored it.
    """
    plain = TableLayout(properties=config.table_properties)
    mirrors = TableLayout(
        properties=config.table_properties,
        partition_by=_columns(config.mirror_partition_by),
        cluster_by=_columns(config.mirror_cluster_by),
    )
    makers: Mapping[str, Callable[[], Sink]] = {
        CHANGELOG: lambda: DeltaChangelogSink(spark, output.root, direct=direct, layout=plain),
        MIRROR: lambda: DeltaMirrorSink(
            spark,
            output.root,
            direct=direct,
            accepted=config.accepted_exclusions,
            layout=mirrors,
        ),
        HISTORY: lambda: DeltaHistorySink(
            spark,
            output.root,
            direct=direct,
            accepted=config.accepted_exclusions,
            layout=plain,
            columns=HistoryColumns(config.history_prefix),
        ),
        PARQUET: lambda: ParquetSink(spark, output, is_direct=direct is not None),
        TRANSACTIONS: lambda: DeltaTransactionsSink(spark, output.root),
        PARQUET_TRANSACTIONS: lambda: ParquetTransactionsSink(output),
        DATASTREAM_FILES: lambda: DatastreamFilesSink(
            output,
            FileSettings(
                FileFormat(config.datastream_files_format),
                FileLimits(config.datastream_files_rows_max, config.datastream_files_bytes_max),
            ),
            stream=lambda: _stream(config),
        ),
        CHANGELOG_BY_KEY: lambda: DeltaChangelogByKeySink(spark, output.root, layout=plain),
        MIRROR_BY_KEY: lambda: DeltaMirrorByKeySink(
            spark, output.root, accepted=config.accepted_exclusions, layout=plain
        ),
        PARQUET_BY_KEY: lambda: ParquetByKeySink(spark, output),
        ICEBERG_CHANGELOG: lambda: IcebergChangelogSink(
            spark, output.root, _iceberg_place(config, output)
        ),
        ICEBERG_MIRROR: lambda: IcebergMirrorSink(
            spark,
            output.root,
            _iceberg_place(config, output),
            direct=direct,
            accepted=config.accepted_exclusions,
        ),
        TOPIC: lambda: OrderedTopicSink(
            KafkaOutputTopic(
                config.ordered_topic,
                bootstrap_servers=config.bootstrap_servers,
                options=config.kafka_client_options(),
                topic_partitions=config.ordered_topic_partitions,
                transaction_timeout_ms=config.ordered_topic_timeout_ms,
            ),
            names=config.topic_names,
            order=TopicOrder(config.ordered_topic_order),
            first_release=first_release(TOPIC, state, stored),
            require_writer=output.require_writer,
            transactions=transaction_records,
        ),
    }
    sinks = tuple(makers[name]() for name in config.sink_names)
    if config.catalog_schema:
        names = CatalogNames(spark, config.catalog_schema)
        sinks = tuple(
            named(sink, names, output=output) if sink.name in SCHEMAS else sink for sink in sinks
        )
    return (*sinks, *further)


def _columns(by_table: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    return {table: names_in(text) for table, text in by_table.items()}


def _iceberg_place(config: ConsumerConfig, output: Storage) -> IcebergPlace:
    return IcebergPlace.of(
        output.root,
        prefix=config.prefix,
        catalog=config.iceberg_catalog,
        namespace=config.iceberg_namespace,
    )


def _stream(config: ConsumerConfig) -> str:
    """Return the full name of the change stream, which its first record has."""
    topic = config.topic_names.progress
    registry = HttpSchemaRegistry(config.registry_url, options=config.registry_client_options())
    started = recorded_start(
        topic,
        bootstrap_servers=config.bootstrap_servers,
        options={**config.kafka_client_options(), "logger": KafkaClientLog()},
        schema_of=registry.schema,
    )
    if started is None:
        raise ConfigError(
            "the progress topic does not say which change stream it is of",
            hint="Restore the topic: its first record, StreamStarted, is missing",
            topic=topic,
        )
    return started.stream
