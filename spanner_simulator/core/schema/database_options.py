"""ALTER DATABASE: options that are kept and shown; only version_retention_period has an effect."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.spanner_simulator.core.schema.schema_objects import duration_us
from tidegate.spanner_simulator.errors import Code, SpannerError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.spanner_simulator.core.schema import statements as ddl
    from tidegate.spanner_simulator.core.schema.catalogue import Catalogue

__all__ = ["OPTIONS", "alter_database", "version_retention_us"]

OPTIONS = (
    "version_retention_period",
    "default_leader",
    "optimizer_version",
    "optimizer_statistics_package",
    "default_time_zone",
    "default_sequence_kind",
)
_DEFAULT_RETENTION = "1h"
_MAX_RETENTION = "7d"


def version_retention_us(options: Mapping[str, ddl.OptionValue]) -> int:
    """How long old versions of rows can be read: one hour unless set."""
    return duration_us(str(options.get("version_retention_period") or _DEFAULT_RETENTION))


def alter_database(catalogue: Catalogue, statement: ddl.AlterDatabase) -> None:
    """Set options, or reset those that are None."""
    for name, value in statement.options:
        if value is None:
            catalogue.options.pop(name, None)
            continue
        if name == "version_retention_period":
            _check_retention(str(value))
        catalogue.options[name] = value
    catalogue.database_name = statement.database


def _check_retention(value: str) -> None:
    if not duration_us(_DEFAULT_RETENTION) <= duration_us(value) <= duration_us(_MAX_RETENTION):
        raise SpannerError(
            Code.FAILED_PRECONDITION,
            f"Invalid version_retention_period: {value}. The version retention period must be a "
            f"value in the range [{_DEFAULT_RETENTION}, {_MAX_RETENTION}].",
        )
