"""Files that a replaced run writes late: how they are recognised, how often they are accepted."""

import pytest

from tidegate.spark_consumer.core.late_writes import QueryRestarts, is_late_write


@pytest.mark.parametrize(
    ("text", "is_late"),
    [
        (
            "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs",
            True,
        ),
        ("Multiple streaming queries are concurrently using file:/check/spark/commits.", True),
        ("[CONCURRENT_QUERY] Another instance of this query was just started", False),
        ("[STREAM_FAILED] Query terminated with exception: Some data may have been lost", False),
        ("", False),
    ],
)
def test_spark_says_in_two_ways_that_another_run_has_written(text, is_late):
    assert is_late_write(text) == is_late


def test_a_query_is_started_again_a_few_times_in_a_while():
    restarts = QueryRestarts(restarts_max=2, within_s=10)
    times_s = [0, 9, 9.5, 10, 10.5, 19, 19.5]
    assert [restarts.may_restart(now_s=now_s) for now_s in times_s] == [
        True, True, False, True, False, True, False,
    ]  # fmt: skip
