"""Releases of hand-made topics, as the sinks have them."""

from tests.spark.sinks.conftest import kit

__all__ = ["kit"]
