"""The settings of the output's Delta tables: their layout, and what keeps them readable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Self

from pydantic import Field, field_validator, model_validator

from tidegate.program.settings_stream import StreamSettings, flat_options

_MIB = 1024**2
_VACUUM_HOURS_MIN = 24
_FILES_MIN = 2

_OURS = frozenset(
    {
        "delta.appendOnly",
        "delta.columnMapping.mode",
        "delta.dataSkippingStatsColumns",
        "delta.setTransactionRetentionDuration",
    }
)
"""Properties that exactly-once, or readers of every version, rest on."""


class TableSettings(StreamSettings):
    """What is set of the tables; `table_properties` and the layouts are those of new tables."""

    list_separators: ClassVar[Mapping[str, str]] = {
        **StreamSettings.list_separators,
        "mirror_partition_by": ",",
        "mirror_cluster_by": ",",
    }

    compact_files_min: int = Field(
        default=32,
        ge=0,
        description="Small files of a table that are rewritten as one, in order; 0: never",
    )
    target_file_bytes: int = Field(
        default=32 * _MIB,
        ge=_MIB,
        description="Size up to which files are rewritten as one; a batch rewrites no more than "
        "this, in memory of about eight times as much",
    )
    vacuum_retention_hours: int = Field(
        default=0,
        ge=0,
        description="Age after which files that were replaced are deleted, at least 24; as_of "
        "reads no further back. 0: never",
    )
    vacuum_interval_ms: int = Field(
        default=86_400_000, ge=60_000, description="Time between two such deletions"
    )
    table_properties: dict[str, str] = Field(
        default={}, description="Delta's properties of new tables, by Delta's names"
    )
    mirror_partition_by: dict[str, str] = Field(
        default={},
        description="Columns that a new mirror is partitioned by, comma-separated, by table",
    )
    mirror_cluster_by: dict[str, str] = Field(
        default={},
        description="Columns that a new mirror is clustered by (liquid clustering), likewise",
    )

    @field_validator("compact_files_min")
    @classmethod
    def _refuse_one(cls, value: int) -> int:
        if 0 < value < _FILES_MIN:
            raise ValueError(f"must be 0, or {_FILES_MIN} or more")
        return value

    @field_validator("vacuum_retention_hours")
    @classmethod
    def _refuse_short(cls, value: int) -> int:
        if 0 < value < _VACUUM_HOURS_MIN:
            # Files of a commit that is being written are not in the log yet.
            raise ValueError(f"must be 0, or {_VACUUM_HOURS_MIN} or more")
        return value

    @field_validator("table_properties", "mirror_partition_by", "mirror_cluster_by", mode="before")
    @classmethod
    def _flatten_tables(cls, value: object) -> object:
        """Take names without quotes, which TOML reads as tables, and numbers."""
        return dict(flat_options(value)) if isinstance(value, Mapping) else value

    @field_validator("table_properties")
    @classmethod
    def _refuse_ours(cls, value: dict[str, str]) -> dict[str, str]:
        ours = sorted(name for name in value if name in _OURS or name.startswith("tidegate."))
        if ours:
            raise ValueError(f"{', '.join(ours)}: set by Tidegate; leave them out")
        others = sorted(name for name in value if not name.startswith("delta."))
        if others:
            raise ValueError(f"{', '.join(others)}: Delta's properties begin with delta.")
        return value

    @field_validator("mirror_partition_by", "mirror_cluster_by")
    @classmethod
    def _require_columns(cls, value: dict[str, str]) -> dict[str, str]:
        for table, text in value.items():
            columns = column_names(text)
            if not columns or len(set(columns)) < len(columns):
                raise ValueError(f"{table}: name each column once, and at least one")
        return value

    @model_validator(mode="after")
    def _refuse_both(self) -> Self:
        both = sorted(self.mirror_partition_by.keys() & self.mirror_cluster_by.keys())
        if both:
            raise ValueError(
                f"mirror_cluster_by: {', '.join(both)}: a table in mirror_partition_by cannot be "
                "clustered too"
            )
        return self


def column_names(text: str) -> tuple[str, ...]:
    """Return the columns that a value of a layout names."""
    return tuple(name.strip() for name in text.split(",") if name.strip())
