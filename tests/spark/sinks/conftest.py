"""Releases of hand-made topics, and what the tables hold after them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from tests.any_schema.release import release_of
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
        ordered = sorted(changes, key=lambda pair: pair[1].order_key)
        rows = [topic.row(change, ordinal=n) for n, (topic, change) in enumerate(ordered)]
        known = {topic.topic: topic for topic in topics} | {t.topic: t for t, _ in changes}
        return release_of(
            spark,
            rows,
            {name: topic.topic_schemas() for name, topic in known.items()},
            number=number,
            small=small,
            through_us=through_us,
            query_id=query_id,
            alter=alter,
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
