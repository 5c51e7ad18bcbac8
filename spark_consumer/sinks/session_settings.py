"""Settings of a session, also within a block."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

__all__ = ["session_settings", "set_all"]


@contextmanager
def session_settings(spark: SparkSession, settings: Mapping[str, str | None]) -> Iterator[None]:
    """Set settings within a block: some statements and writers take them in no other way.

    None: not set.
    """
    before: dict[str, str | None] = {name: spark.conf.get(name, None) for name in settings}
    try:
        set_all(spark, settings)
        yield
    finally:
        set_all(spark, before)


def set_all(spark: SparkSession, settings: Mapping[str, str | None]) -> None:
    """Set settings of a session; None: not set."""
    for name, value in settings.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)
