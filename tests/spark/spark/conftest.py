"""Tests of the query beside Spark: releases of hand-made topics."""

from tests.spark.sinks.conftest import kit

__all__ = ["kit"]
