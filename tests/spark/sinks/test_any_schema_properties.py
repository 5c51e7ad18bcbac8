"""Worlds of any schema on real sinks, written by both ways in turns (`tests/any_schema`)."""

import pytest

from tests.any_schema.sink_lane import PER_MERGE, sink_world

pytestmark = [pytest.mark.spark, pytest.mark.slow]
CI = 3
"""How many of the dozen worlds of PER_MERGE are tried in CI; the others are `deep`."""


def require_equal(spark, folder, seed, **shape):
    found = sink_world(seed, **shape).differences(spark, folder / f"{seed}")
    assert (seed, found) == (seed, [])


@pytest.mark.timeout(900)
def test_tables_hold_what_was_committed_whichever_engine_writes_and_reads(spark, tmp_path):
    for seed in PER_MERGE[:CI]:
        require_equal(spark, tmp_path, seed)


@pytest.mark.deep
@pytest.mark.timeout(1800)
def test_each_type_of_a_key_is_the_first_column_of_a_table(spark, tmp_path):
    for seed in PER_MERGE[CI:]:
        require_equal(spark, tmp_path, seed)


@pytest.mark.deep
@pytest.mark.timeout(1800)
def test_spark_and_delta_rs_take_turns_for_all_sinks(spark, tmp_path):
    for seed in range(1_000, 1_012):
        require_equal(spark, tmp_path, seed, is_long=True, is_iceberg=False)


@pytest.mark.deep
@pytest.mark.timeout(1800)
def test_iceberg_holds_what_was_committed(spark, tmp_path):
    for seed in range(3_000, 3_006):
        require_equal(spark, tmp_path, seed, is_long=True, is_iceberg=True)


@pytest.mark.deep
@pytest.mark.timeout(1800)
def test_tables_of_a_hundred_columns(spark, tmp_path):
    for seed in range(2_000, 2_003):
        require_equal(spark, tmp_path, seed, columns_max=100, tables=2)
