"""Figures of a batch's changes."""

from tidegate.spark_consumer.core.batch_stats import BatchStats
from tidegate.spark_consumer.core.release import Distribution


def test_every_kind_of_row_is_counted():
    stats = BatchStats(
        late_rows=1,
        due=Distribution(20, (5,)),
        early=Distribution(300, (9,)),
        unordered_rows=4_000,
    )
    assert stats.rows == 4_321


def test_a_batch_without_data_has_no_rows():
    assert BatchStats().rows == 0
