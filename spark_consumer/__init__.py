"""The gate: changes from Kafka to tables, in commit order, each exactly once.

`core/` decides, without Spark and I/O; `batch/` executes its effects over ports; `checkpoint/`
stores them; `sinks/` write releases; `spark/` holds the query and its session; `kafka/` checks
topics and options before Spark starts.  `commands/` are those of `tidegate-consumer`, `library/`
and `notebook/` serve programs that have a session.

    build_query(spark, config)        starts the gate on an existing session
    FunctionSink(function, spark)     a function that the gate calls with each release
    as_of(spark, output, time)        reads every table as it was at one moment

All load pyspark when they are first used, never before.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if __name__ != "tidegate.spark_consumer":
    message = (
        f"this package is tidegate.spark_consumer, and was imported as {__name__!r}: "
        "write `import tidegate.spark_consumer`, and take the repository's top folder off sys.path"
    )
    raise ImportError(message)

if TYPE_CHECKING:
    from tidegate.spark_consumer.sinks.delta.as_of import as_of
    from tidegate.spark_consumer.sinks.function import FunctionSink
    from tidegate.spark_consumer.spark.query import build_query

__all__ = ["FunctionSink", "as_of", "build_query"]

_HOMES = {
    "FunctionSink": "tidegate.spark_consumer.sinks.function",
    "as_of": "tidegate.spark_consumer.sinks.delta.as_of",
    "build_query": "tidegate.spark_consumer.spark.query",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(import_module(_HOMES[name]), name)
