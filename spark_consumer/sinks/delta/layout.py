"""How new tables are laid out: Delta's properties, partitions, liquid clustering.

A table that exists stays as it is: its owner may change it by SQL, and the run goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.sinks.delta.partitions import unequal_columns

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


_WITHOUT_FEATURE = frozenset(
    {
        "delta.checkpointInterval",
        "delta.dataSkippingNumIndexedCols",
        "delta.deletedFileRetentionDuration",
        "delta.logRetentionDuration",
        "delta.targetFileSize",
    }
)
"""Properties that need no feature of a table; of others Spark adds what they need."""

_NESTED = frozenset({"array", "map", "struct"})


@dataclass(frozen=True, slots=True)
class TableLayout:
    """What new tables of one sink get; columns are by table."""

    properties: Mapping[str, str] = field(default_factory=dict)
    partition_by: Mapping[str, Sequence[str]] = field(default_factory=dict)
    cluster_by: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def has_features(self) -> bool:
        """Whether the properties may need a feature of Delta's, which only Spark adds."""
        return any(
            name.startswith("delta.") and name not in _WITHOUT_FEATURE for name in self.properties
        )

    def partition_columns(self, table: str, schema: StructType) -> tuple[str, ...]:
        """Return the columns that a table is partitioned by.

        Raises ConfigError if it lacks one, or for a type that Spark and delta-rs would write as
        different partitions.
        """
        setting = "mirror_partition_by"
        wanted = self._columns(setting, self.partition_by, table, schema)
        for name in unequal_columns(schema, wanted):
            message = f"{setting}: a table cannot be partitioned by a column of this type"
            hint = (
                "Name columns of the types INT64, BOOL, DATE or STRING; `mirror_cluster_by` takes "
                "others"
            )
            kind = schema[name].dataType.simpleString()
            raise ConfigError(message, hint=hint, table=table, column=name, type=kind)
        return wanted

    def cluster_columns(self, table: str, schema: StructType) -> tuple[str, ...]:
        """Return the columns that a table is clustered by; raises ConfigError if it lacks one."""
        return self._columns("mirror_cluster_by", self.cluster_by, table, schema)

    @staticmethod
    def _columns(
        setting: str, columns: Mapping[str, Sequence[str]], table: str, schema: StructType
    ) -> tuple[str, ...]:
        wanted = tuple(columns.get(table, ()))
        kinds = {one.name: one.dataType.typeName() for one in schema}
        for name in wanted:
            if name not in kinds or kinds[name] in _NESTED:
                message = f"{setting}: a table cannot be laid out by this column"
                plain = sorted(one for one, kind in kinds.items() if kind not in _NESTED)
                raise ConfigError(
                    message,
                    hint="Name one of its columns that is neither an array nor missing",
                    table=table,
                    column=name,
                    columns=plain,
                )
        return wanted
