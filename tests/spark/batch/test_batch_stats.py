"""The figures of a batch's changes."""

from __future__ import annotations

import pytest

from tests.spark.gate_rows import change
from tidegate.schemas.errors import SchemaError
from tidegate.spark_consumer.batch.batch_stats import count_changes
from tidegate.spark_consumer.core.batch_state import TopicIds
from tidegate.spark_consumer.core.batch_stats import BatchStats

pytestmark = pytest.mark.spark


def test_the_stats_counts_against_both_watermarks(rows):
    progress = (True, "bank-progress", 0, 0, b"k", b"v", None, None, None)
    found = count_changes(
        rows(
            progress,
            *(change(us) for us in (5, 10)),
            *(change(us, value_id=4) for us in (11, 15, 20)),
            *(change(us, topic="bank.b", key_id=7, value_id=None) for us in (21, 40)),
        ),
        after_us=10,
        through_us=20,
    )
    assert (found.late_rows, found.due.rows, found.early.rows) == (2, 3, 2)
    # Keys and values of six bytes each, and two changes without a value.
    assert (found.due.size_bytes, found.early.size_bytes) == (36, 12)
    assert set(found.due.quantiles_us) == {11, 15, 20}
    assert found.due.quantiles_us[-1] == 20
    assert (found.early_min_us, found.early_max_us) == (21, 40)
    assert found.topics == (TopicIds("bank.a", (1,), (2, 4)), TopicIds("bank.b", (7,), ()))
    assert (found.unordered_rows, found.unordered_at) == (0, "")


def test_the_stats_of_nothing_is_nothing(rows):
    assert count_changes(rows(), after_us=-1, through_us=-1) == BatchStats()


@pytest.mark.parametrize("order_key", [None, b"", b"\x00" * 28])
def test_a_row_without_a_whole_order_key_is_found(rows, order_key):
    bad = (*change(5, 77)[:6], order_key, "I", 7)
    found = count_changes(rows(change(11), bad), after_us=10, through_us=20)
    assert (found.unordered_rows, found.unordered_at) == (1, "bank.a/0/77")
    assert (found.late_rows, found.due.rows) == (0, 1)


def test_a_value_without_confluents_header_is_refused(rows):
    bad = (*change(5)[:5], b"\x01\x00", *change(5)[6:])
    with pytest.raises(SchemaError, match="header"):
        count_changes(rows(bad), after_us=-1, through_us=20)
