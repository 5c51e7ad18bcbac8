"""Refuses a session of Spark Connect by name, before one of its missing features fails."""

from __future__ import annotations

from tidegate.schemas.errors import ConfigError

_CONNECT = "pyspark.sql.connect."


def require_classic(spark: object) -> None:
    """Raise ConfigError for a session of Spark Connect.

    The gate calls Hadoop and Delta in the driver's own JVM, and its batches and the program's
    functions run in the driver's own process: a remote session has neither.
    """
    if any(base.__module__.startswith(_CONNECT) for base in type(spark).__mro__):
        raise ConfigError(
            "Spark Connect is not supported: the gate calls Hadoop and Delta in the JVM of its own"
            " driver, and this session has none",
            hint=(
                "Use a classic session: tidegate.session(), or SparkSession.builder.master(…) in"
                " place of remote(…); on Databricks, a cluster in dedicated access mode"
            ),
            session=type(spark).__module__,
        )
