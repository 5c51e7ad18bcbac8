"""Rows of a micro-batch in the gate's columns, and a gate's folder."""

from __future__ import annotations

import pytest

from tests.spark.gate_rows import GATE_SCHEMA


@pytest.fixture
def rows(spark):
    """Make a frame of gate rows."""
    return lambda *rows: spark.createDataFrame(list(rows), GATE_SCHEMA)


@pytest.fixture
def storage(spark, tmp_path):
    """The gate's folder, taken by this test."""
    from tidegate.spark_consumer.checkpoint.storage import Storage

    storage = Storage(spark, str(tmp_path / "gate"))
    storage.take()
    return storage


@pytest.fixture
def world(spark, tmp_path):
    """A checkpoint and an output, and the batches that Spark runs."""
    from tests.spark.batch.gate_world import GateWorld

    return GateWorld(spark, tmp_path)
