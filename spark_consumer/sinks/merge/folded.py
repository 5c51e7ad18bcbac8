"""One table's folded changes, as a MERGE by Spark takes them.

The changes of a small release are in the driver's memory, and are folded there: for a table of 300
columns, Spark plans its own fold for seconds, however few rows there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom
from pyspark.sql.types import BooleanType, DataType, LongType, StringType, StructType

from tidegate.spark_consumer.sinks.merge.fold import (
    DELETE,
    PATCH,
    FoldedRow,
    captured_flag,
    fold,
    fold_rows,
    folded_value,
    newest_changes,
    newest_rows,
)
from tidegate.spark_consumer.sinks.merge.scope import mirror_columns
from tidegate.spark_consumer.sinks.port import AnyTable, CollectedTable
from tidegate.spark_consumer.sinks.sql import checkpointed, free


@dataclass(frozen=True, slots=True)
class Folded:
    """The columns of `fold`, computed; `free` it at last."""

    frame: DataFrame
    rows: int
    """How many rows it leaves in the table."""
    patched: int
    """How many keys have UPDATEs only, which may be of rows that the table lacks."""
    lost: int
    """How many keys have UPDATEs after their DELETE."""
    is_checkpoint: bool

    def free(self) -> None:
        """Free what Spark holds for it."""
        if self.is_checkpoint:
            free(self.frame)


def folded_table(table: AnyTable) -> Folded:
    """Return the fold of one table's changes, for its mirror."""
    columns = mirror_columns(table.schemas)
    if isinstance(table, CollectedTable):
        rows = fold_rows(newest_rows(table.changes, columns), columns)
        return Folded(
            frame=folded_frame(table, rows),
            rows=sum(row.action != DELETE for row in rows),
            patched=sum(row.action == PATCH for row in rows),
            lost=sum(row.action == DELETE and row.updated_after_base for row in rows),
            is_checkpoint=False,
        )
    action = F.col("action")
    frame, counts = checkpointed(
        fold(newest_changes(table.frame, columns), columns),
        rows=F.count_if(action != DELETE),
        patched=F.count_if(action == PATCH),
        lost=F.count_if((action == DELETE) & F.col("updated_after_base")),
    )
    return Folded(frame, **counts, is_checkpoint=True)


def folded_frame(table: CollectedTable, rows: Sequence[FoldedRow]) -> DataFrame:
    """Return a table's folded rows in the types that its decoded changes have."""
    import pyarrow  # noqa: PLC0415 - optional: changes are collected only with it
    from pyspark.sql.pandas.types import to_arrow_type  # noqa: PLC0415 - needs pyarrow

    columns, changes = mirror_columns(table.schemas), table.schema
    values: Any = changes["new_values"].dataType
    schema = StructType()
    contents: list[Any] = []

    def add(name: str, kind: DataType, content: Iterable[Any]) -> None:
        schema.add(name, kind)
        contents.append(pyarrow.array(list(content), to_arrow_type(kind)))

    add("key", changes["key"].dataType, (row.key for row in rows))
    add("action", StringType(), (row.action for row in rows))
    add("base_ordinal", LongType(), (row.base_ordinal for row in rows))
    add("updated_after_base", BooleanType(), (row.updated_after_base for row in rows))
    for n, column in enumerate(columns):
        add(captured_flag(n), BooleanType(), (row.captures(column) for row in rows))
        add(folded_value(n), values[column].dataType, (row.values.get(column) for row in rows))
    return table.spark.createDataFrame(pyarrow.table(contents, schema.names), schema)
