"""The table of late changes."""

from __future__ import annotations

import pytest

from tests.spark.gate_rows import GATE_SCHEMA, change
from tidegate.spark_consumer.batch.rows import CHANGE_COLUMNS
from tidegate.spark_consumer.sinks.delta.late import DeltaLateTable

pytestmark = pytest.mark.spark


def test_late_changes_are_kept_once_with_the_watermark_they_missed(spark, tmp_path):
    late = DeltaLateTable(str(tmp_path))
    rows = spark.createDataFrame([change(7, 1), change(5, 2)], GATE_SCHEMA)
    found = rows.select(*CHANGE_COLUMNS)
    for _ in range(2):
        assert late.write(found, query_id="q", batch=3, watermark_us=9) == 2
    assert late.write(found.limit(1), query_id="q", batch=4, watermark_us=10) == 1
    table = spark.read.format("delta").load(str(tmp_path / "late"))
    kept = sorted((row.batch, row.watermark_us, row.offset) for row in table.collect())
    assert kept[:2] == [(3, 9, 1), (3, 9, 2)]
    assert len(kept) == 3


def test_a_table_of_an_older_program_gets_the_columns_that_it_lacks(spark, tmp_path):
    late = DeltaLateTable(str(tmp_path))
    rows = spark.createDataFrame([change(7, 1)], GATE_SCHEMA).select(*CHANGE_COLUMNS)
    late.write(rows.drop("origin"), query_id="q", batch=3, watermark_us=9)
    late.write(rows, query_id="q", batch=4, watermark_us=10)
    table = spark.read.format("delta").load(str(tmp_path / "late"))
    assert {(row.batch, row.origin) for row in table.collect()} == {(3, None), (4, 7)}


@pytest.mark.slow
def test_what_a_batch_has_written_is_counted_also_after_many_commits_of_others(spark, tmp_path):
    late = DeltaLateTable(str(tmp_path))
    rows = spark.createDataFrame([change(7, 1), change(5, 2)], GATE_SCHEMA).select(*CHANGE_COLUMNS)
    late.write(rows, query_id="q", batch=3, watermark_us=9)
    for n in range(20):
        spark.sql(f"ALTER TABLE delta.`{tmp_path}/late` SET TBLPROPERTIES ('team' = '{n}')")
    assert late.write(rows.limit(1), query_id="q", batch=3, watermark_us=9) == 2
