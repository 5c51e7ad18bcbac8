"""Tidegate: row changes from Spanner change streams to Spark, in commit order, each exactly once.

    spark = tidegate.session()                        a local session with all that is needed
    tidegate.stream(spark, bootstrap_servers=…, …)    builds and starts a query
    tidegate.as_of(spark, output, time)               every table as it was at one moment
    tidegate.releases(spark, output)                  what was released when, as a pandas frame
    tidegate.plot_releases(releases)                  the same as a picture
    tidegate.audit(spark, output, …)                  proves an output complete
    tidegate.status(checkpoint)                       how far a query has come
    tidegate.SPARK_PACKAGES                           what a session of your own needs
    tidegate.ICEBERG_PACKAGES                         what the Iceberg sinks need beside them
    tidegate.QueryFailed                              what ends a query
    tidegate.Sink, Release, TableVersion              the port of a sink of your own
    tidegate.BatchSink, HandedBatch                   of one that takes batches as they are read
    tidegate.changes_of, transactions_of              a release as one DataFrame

This package is the only import root.  The folders at the top of the repository (`schemas`,
`lineage`, `program`, `producer`, `spark_consumer`, `local_stack`) are its subpackages through
relative links; importing them under their bare names is an error.  `import tidegate` imports no
subpackage and needs no extra; the names above are imported from the consumer at their first use,
and need pyspark, but for the packages, `status`, `releases`, `plot_releases` and the classes of the
port; `releases` and `plot_releases` need the extra `notebook`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tidegate.version import __version__

if TYPE_CHECKING:
    from tidegate.spark_consumer.commands.status import status
    from tidegate.spark_consumer.config import ICEBERG_PACKAGES, SPARK_PACKAGES
    from tidegate.spark_consumer.library.audit import audit
    from tidegate.spark_consumer.library.builder import stream
    from tidegate.spark_consumer.library.query import QueryFailed
    from tidegate.spark_consumer.library.session import session
    from tidegate.spark_consumer.notebook.release_figure import plot_releases
    from tidegate.spark_consumer.notebook.releases import releases
    from tidegate.spark_consumer.sinks.delta.as_of import as_of
    from tidegate.spark_consumer.sinks.handed_batch import BatchSink, HandedBatch
    from tidegate.spark_consumer.sinks.port import Release, Sink, TableVersion
    from tidegate.spark_consumer.sinks.released_frame import changes_of, transactions_of

__all__ = [
    "ICEBERG_PACKAGES",
    "SPARK_PACKAGES",
    "BatchSink",
    "HandedBatch",
    "QueryFailed",
    "Release",
    "Sink",
    "TableVersion",
    "__version__",
    "as_of",
    "audit",
    "changes_of",
    "plot_releases",
    "releases",
    "session",
    "status",
    "stream",
    "transactions_of",
]

_HOMES = {
    "BatchSink": "tidegate.spark_consumer.sinks.handed_batch",
    "HandedBatch": "tidegate.spark_consumer.sinks.handed_batch",
    "ICEBERG_PACKAGES": "tidegate.spark_consumer.config",
    "QueryFailed": "tidegate.spark_consumer.library.query",
    "Release": "tidegate.spark_consumer.sinks.port",
    "SPARK_PACKAGES": "tidegate.spark_consumer.config",
    "Sink": "tidegate.spark_consumer.sinks.port",
    "TableVersion": "tidegate.spark_consumer.sinks.port",
    "as_of": "tidegate.spark_consumer.sinks.delta.as_of",
    "audit": "tidegate.spark_consumer.library.audit",
    "changes_of": "tidegate.spark_consumer.sinks.released_frame",
    "plot_releases": "tidegate.spark_consumer.notebook.release_figure",
    "releases": "tidegate.spark_consumer.notebook.releases",
    "session": "tidegate.spark_consumer.library.session",
    "status": "tidegate.spark_consumer.commands.status",
    "stream": "tidegate.spark_consumer.library.builder",
    "transactions_of": "tidegate.spark_consumer.sinks.released_frame",
}


def __getattr__(name: str) -> Any:
    """Import a name when it is first used; raises ImportError where an extra is missing."""
    if name not in _HOMES:
        message = f"module 'tidegate' has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """Name what is imported late, for completion in a notebook."""
    return sorted({*globals(), *__all__})
