"""Settings of a session, also within a block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


NOT_COMPILED: Mapping[str, str] = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""A few rows are read sooner than the code for them is made and compiled."""

_FEW_ROWS = 1_000


def for_rows(rows: int) -> Mapping[str, str]:
    """Return the settings of statements that read this many rows and nothing else."""
    return NOT_COMPILED if rows <= _FEW_ROWS else {}


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
