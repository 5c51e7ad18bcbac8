"""The clauses of a MERGE that applies folded changes, as SQL over `t` (table) and `s` (fold)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidegate.schemas.source_order import SOURCE_ORDER
from tidegate.spark_consumer.sinks.delta.fold import (
    DELETE,
    REPLACE,
    captured_flag,
    folded_value,
)
from tidegate.spark_consumer.sinks.sql_names import quoted


@dataclass(frozen=True, slots=True)
class MergeClauses:
    """Columns are quoted; `changed` and `inserted` are values by column."""

    same_key: str
    is_deleted: str
    is_inserted: str
    changed: Mapping[str, str]
    inserted: Mapping[str, str]

    def sql(self, table: str, source: str) -> str:
        """Return the statement, for names that are quoted already."""
        assigned = ", ".join(f"t.{column} = {value}" for column, value in self.changed.items())
        return (
            f"MERGE INTO {table} t USING {source} s ON {self.same_key} "  # noqa: S608 - quoted names
            f"WHEN MATCHED AND {self.is_deleted} THEN DELETE WHEN MATCHED THEN UPDATE SET "
            f"{assigned} WHEN NOT MATCHED AND {self.is_inserted} THEN INSERT "
            f"({', '.join(self.inserted)}) VALUES ({', '.join(self.inserted.values())})"
        )


def merge_clauses(
    *, columns: Sequence[str], keys: Sequence[str], existing: Sequence[str] = ()
) -> MergeClauses:
    """Return the clauses for a fold of these columns; keys are also equal where both are null.

    With the column `SOURCE_ORDER` a row changes only if it has a lower value there.

    A column that `existing` names and the fold lacks becomes null in a row that is inserted.
    """
    folded = {column.lower() for column in columns}
    others = [column for column in existing if column.lower() not in folded]
    positions = {column: n for n, column in enumerate(columns)}
    # A table of key columns only has nothing to patch, but a MERGE must assign something.
    assigned = [column for column in columns if column not in keys] or list(keys)
    newer = ""
    if SOURCE_ORDER in positions:
        newer = f" AND s.{folded_value(positions[SOURCE_ORDER])} > t.{quoted(SOURCE_ORDER)}"
    return MergeClauses(
        same_key=" AND ".join(f"t.{quoted(key)} <=> s.key.{quoted(key)}" for key in keys),
        is_deleted=f"s.action = '{DELETE}'",
        is_inserted=f"s.action = '{REPLACE}'",
        changed={
            quoted(column): f"CASE WHEN s.{captured_flag(positions[column])}{newer} "
            f"THEN s.{folded_value(positions[column])} ELSE t.{quoted(column)} END"
            for column in assigned
        },
        inserted={
            **{quoted(column): f"s.{folded_value(n)}" for column, n in positions.items()},
            **{quoted(column): "NULL" for column in others},
        },
    )
