"""Rows that are appended once, and counted by the table's own commits."""

from __future__ import annotations

import pytest

from tidegate.spark_consumer.sinks.delta.side_table import append_once

pytestmark = pytest.mark.spark


def test_each_version_of_an_application_is_appended_once(spark, tmp_path):
    path, rows = str(tmp_path / "aside"), spark.range(3)

    def append(version, application="q/late", frame=rows):
        commit = {"application": application, "version": version}
        return append_once(frame, path, application=application, version=version, commit=commit)

    assert [append(4), append(4), append(5), append(4)] == [3, 3, 3, 3]
    # Two applications of one table do not know of each other's versions.
    assert append(4, "q/release", rows.limit(2)) == 2
    assert append(4, "q/release", rows.limit(2)) == 2
    assert spark.read.format("delta").load(path).count() == 3 + 3 + 2


def test_a_version_below_one_that_is_there_adds_nothing_and_counts_none(spark, tmp_path):
    path = str(tmp_path / "aside")
    commit = {"version": 5}
    append_once(spark.range(3), path, application="q", version=5, commit=commit)
    assert append_once(spark.range(1), path, application="q", version=4, commit={"version": 4}) == 0
    assert spark.read.format("delta").load(path).count() == 3
