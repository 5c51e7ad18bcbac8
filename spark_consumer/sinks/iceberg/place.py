"""Where the Iceberg tables of a query are: a catalog, and a namespace for each kind of table.

Without a catalog of the session's own it is a Hadoop catalog below `<output>/iceberg`, which is set
in the session under a name of its own.  A Hadoop catalog commits by a rename that must not replace
a file, so an output in an object store needs a catalog.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.sinks.sql import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


ICEBERG_FOLDER = "iceberg"
"""The warehouse in the output."""

_CATALOG_CLASS = "org.apache.iceberg.spark.SparkCatalog"
_OBJECT_STORES = ("s3", "s3a", "s3n", "gs", "oss", "cosn", "wasb", "wasbs", "abfs", "abfss")


@dataclass(frozen=True, slots=True)
class IcebergPlace:
    """`warehouse` is that of the Hadoop catalog; empty: the session has the catalog already."""

    catalog: str
    namespace: str
    warehouse: str = ""

    @classmethod
    def of(
        cls, output: str, *, prefix: str, catalog: str = "", namespace: str = ""
    ) -> IcebergPlace:
        """Return the place that the settings name; raises ConfigError for an object store."""
        namespace = namespace or re.sub(r"\W", "_", prefix, flags=re.ASCII)
        if catalog:
            return cls(catalog, namespace)
        scheme = output.partition(":")[0]
        if scheme in _OBJECT_STORES:
            raise ConfigError(
                "an Iceberg table in an object store needs a catalog",
                hint=(
                    "Set iceberg_catalog to one of the session's, such as Glue, REST, Hive or JDBC"
                ),
                output=output,
            )
        warehouse = f"{output.rstrip('/')}/{ICEBERG_FOLDER}"
        # Two queries of one session may have two outputs.
        digest = hashlib.sha256(warehouse.encode()).hexdigest()[:12]
        return cls(f"tidegate_{digest}", namespace, warehouse)

    def settings(self) -> dict[str, str]:
        """Return the session settings of the catalog; none for one that the session has."""
        if not self.warehouse:
            return {}
        name = f"spark.sql.catalog.{self.catalog}"
        return {
            name: _CATALOG_CLASS,
            f"{name}.type": "hadoop",
            f"{name}.warehouse": self.warehouse,
            # A kept table would hide what others, and other sessions, have committed.
            f"{name}.cache-enabled": "false",
        }

    def register(self, spark: SparkSession) -> None:
        """Set the catalog in a session that lacks it; a streaming query has its own session."""
        for name, value in self.settings().items():
            if spark.conf.get(name, None) != value:
                spark.conf.set(name, value)

    def levels(self, kind: str) -> tuple[str, ...]:
        """Return the namespace of a kind of table, level by level."""
        *above, last = self.namespace.split(".")
        return (*above, f"{last}_{kind}")

    def identifier(self, kind: str, table: str) -> str:
        """Return the whole name of a table, as SQL takes it."""
        return quoted(self.catalog, *self.levels(kind), table)

    def namespace_identifier(self, kind: str) -> str:
        """Return the whole name of a namespace, as SQL takes it."""
        return quoted(self.catalog, *self.levels(kind))

    def path(self, kind: str, table: str) -> str:
        """Return what a manifest names: the path in the output, or the whole name of the table."""
        if self.warehouse:
            return "/".join((ICEBERG_FOLDER, *self.levels(kind), table))
        return self.identifier(kind, table)
