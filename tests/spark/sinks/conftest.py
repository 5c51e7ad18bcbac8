"""Releases of hand-made topics, and what the tables hold after them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from tests.topics import ROWS_SCHEMA, Change, Topic


@pytest.fixture
def kit(spark, tmp_path):
    """Names that tests need: Topic, Change, release(...), handed(...), read(...), output."""

    def release(
        number, changes, *, topics=(), query_id="query-1", through_us=None, alter=None, small=False
    ):
        """`changes` is [(topic, change)] in any order; they are numbered in commit order.

        `alter` changes the rows before they are decoded; a `small` release is decoded in memory.
        """
        from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

        from tidegate.spark_consumer.sinks.collected_table import CollectedTable
        from tidegate.spark_consumer.sinks.decoding import decode_changes
        from tidegate.spark_consumer.sinks.port import DecodedTable, Release, SourceRecord
        from tidegate.spark_consumer.sinks.row_decoding import decode_rows

        ordered = sorted(changes, key=lambda pair: pair[1].order_key)
        rows = [topic.row(change, ordinal=n) for n, (topic, change) in enumerate(ordered)]
        known = {topic.topic: topic for topic in topics} | {t.topic: t for t, _ in changes}
        frame = spark.createDataFrame(rows, ROWS_SCHEMA).repartition(2)
        frame = frame.withColumn("release", F.lit(number).cast("long"))
        frame = frame if alter is None else alter(frame)
        tables = {}
        for name, topic in known.items():
            schemas = topic.topic_schemas()
            decoded = decode_changes(frame, schemas, topic=name)
            count = sum(topic.topic == name for topic, _ in changes)
            tables[name] = DecodedTable(spark, lambda f=decoded: f, count, schemas)
            if small:
                of_topic = [row.asDict() for row in rows_of(frame) if row["topic"] == name]
                decoded_rows = decode_rows(of_topic, schemas, release=number)
                tables[name] = CollectedTable(spark, lambda f=decoded: f, decoded_rows, schemas)

        def source_records():
            columns = SourceRecord._fields
            for row in frame.orderBy("ordinal").select(*columns).toLocalIterator():
                yield SourceRecord(
                    *(bytes(one) if isinstance(one, bytearray) else one for one in row)
                )

        return Release(
            source_records=source_records,
            number=number,
            after_us=number * 1_000_000,
            through_us=(number + 1) * 1_000_000 if through_us is None else through_us,
            query_id=query_id,
            batch=number,
            rows=len(changes),
            tables=tables,
        )

    def handed(number, changes, *, topics=(), query_id="query-1", through_us=5):
        """A batch before its release; `changes` is [(topic, change)] in Kafka's order."""
        from tidegate.spark_consumer.batch.handed_rows import handed_batch

        rows = [topic.row(change, ordinal=None) for topic, change in changes]
        known = {topic.topic: topic for topic in topics} | {t.topic: t for t, _ in changes}
        frame = spark.createDataFrame(rows, ROWS_SCHEMA).drop("ordinal").repartition(2)
        plan = SimpleNamespace(batch=number, query_id=query_id, through_us=through_us)
        schemas = {name: topic.topic_schemas() for name, topic in known.items()}
        return handed_batch(frame, plan=plan, topics=schemas)

    def rows_of(frame):
        return sorted(frame.collect(), key=lambda row: row["ordinal"])

    def read(path, version=None):
        """Rows of a Delta table, read by delta-rs and not by Spark."""
        import deltalake

        return deltalake.DeltaTable(tmp_path / "out" / path, version=version).to_pyarrow_table()

    return SimpleNamespace(
        Topic=Topic,
        Change=Change,
        instant=lambda us: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us),
        release=release,
        handed=handed,
        read=read,
        spark=spark,
        output=str(tmp_path / "out"),
    )
