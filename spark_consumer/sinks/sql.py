"""Statements of Spark and delta-rs: quoted names and texts, settings, counts of a job.

Names come from sources, settings and paths.  Every statement and every parsed column name takes
them from here, so that a name never ends within its own text.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tidegate.spark_consumer.errors import CountsMissing

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation, SparkSession


NOT_COMPILED: Mapping[str, str] = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Settings for few rows: they are read before code for them would be generated and compiled."""

_FEW_ROWS = 1_000

_PATIENCE_S = 60.0
_LOOK_EVERY_S = 0.005


def quoted(*names: str) -> str:
    """Return a name of one or more parts for Spark: in backticks, those in it doubled."""
    return ".".join(f"`{name.replace('`', '``')}`" for name in names)


def double_quoted(name: str) -> str:
    """Return a name for delta-rs, whose SQL has the standard's double quotes."""
    return '"{}"'.format(name.replace('"', '""'))


def text_literal(text: str) -> str:
    """Return a text for Spark, in which a backslash escapes."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def for_rows(rows: int) -> Mapping[str, str]:
    """Return the settings of statements that only read this many rows."""
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


def observed(
    observation: Observation,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """Return the counts of the first job over an observed frame, once it has ended.

    Spark delivers them a moment after the job, and never where it lost the event, or where the job
    ran in another session than the frame's.  Raises CountsMissing after a minute.
    """
    counts: Any = observation._jo  # noqa: SLF001 - pyspark has no public way to wait with an end
    give_up_at = clock() + _PATIENCE_S
    while not counts.future().isCompleted():
        if clock() >= give_up_at:
            raise CountsMissing(
                "Spark has not reported what a job counted",
                hint="A restart repeats the batch",
                waited_s=_PATIENCE_S,
            )
        sleep(_LOOK_EVERY_S)
    return observation.get


def free(checkpointed: DataFrame) -> None:
    """Free a local checkpoint now, not at the next garbage collection."""
    checkpointed._jdf.queryExecution().logical().rdd().unpersist(False)  # noqa: SLF001, FBT003 - pyspark has no call for it; Java's has no names


def checkpointed(frame: DataFrame, **counts: Column) -> tuple[DataFrame, dict[str, Any]]:
    """Compute a frame once, with counts over its rows; `free` frees it."""
    from pyspark.sql import Observation  # noqa: PLC0415 - where Spark runs

    seen = Observation()
    columns = (count.alias(name) for name, count in counts.items())
    return frame.observe(seen, *columns).localCheckpoint(eager=True), observed(seen)
