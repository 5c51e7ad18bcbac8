"""Tidegate: row changes from Spanner change streams to Spark, in commit order, each exactly once.

This package is the only import root.  The folders at the top of the repository (`schemas`,
`producer`, `spark_consumer`, `local_stack`) are its subpackages through relative links; importing
them under their bare names is an error.  `import tidegate` imports no subpackage and needs no
extra; `as_of` is imported from the consumer at its first use and needs pyspark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegate.version import __version__

if TYPE_CHECKING:
    from tidegate.spark_consumer.sinks.delta.as_of import as_of

__all__ = ["__version__", "as_of"]


def __getattr__(name: str) -> Any:
    """Import `as_of` when it is first used; raises ImportError without pyspark."""
    if name != "as_of":
        message = f"module 'tidegate' has no attribute {name!r}"
        raise AttributeError(message)
    from tidegate.spark_consumer.sinks.delta.as_of import as_of  # noqa: PLC0415 - needs pyspark

    return as_of
