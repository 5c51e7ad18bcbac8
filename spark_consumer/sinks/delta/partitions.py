"""Columns that a table may be partitioned by, and texts that are lost as a partition's name.

A partition's value is text in Delta's log and in the name of a folder.  Spark and delta-rs write
numbers with a fraction and times in different forms, and Spark writes some texts as NULL.  The name
of a folder has a limit.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.sinks.sql_names import text_literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

__all__ = [
    "is_other_path",
    "refuse_lost_texts",
    "refuse_lost_values",
    "text_columns",
    "unequal_columns",
]

_TYPES: Final = frozenset({"long", "boolean", "date", "string"})
"""Types, by Spark's names, that Spark and delta-rs write as the same text."""

_NULL_TEXTS: Final = ("", "__HIVE_DEFAULT_PARTITION__")

_NAME_BYTES_MAX: Final = 255
"""Of a folder's name, in the file systems of this machine and in HDFS."""

_OTHER_PATH: Final = re.compile(r"[^\x00-\x7f]|%[89A-Fa-f]")


def unequal_columns(schema: StructType, names: Iterable[str]) -> list[str]:
    """Return the columns among these that Spark and delta-rs write as different partitions."""
    return [name for name in names if schema[name].dataType.typeName() not in _TYPES]


def text_columns(schema: StructType, names: Iterable[str]) -> list[str]:
    """Return the columns among these that are texts, some of which are lost.

    Others than those of the schema are left out: no change has them.
    """
    texts = {field.name for field in schema if field.dataType.typeName() == "string"}
    return [name for name in names if name in texts]


def refuse_lost_values(table: str, values: Mapping[str, Iterable[Any]]) -> None:
    """Raise ConfigError for a text that cannot be a partition; `values` are by column.

    Spark writes NULL for some, and no folder can have the name of others.
    """
    for column, of_column in values.items():
        most = _text_bytes_max(column)
        texts = [value for value in of_column if isinstance(value, str)]
        lost = [text in _NULL_TEXTS or "\x00" in text or _name_bytes(text) > most for text in texts]
        _refuse(table, column, sum(lost))


def refuse_lost_texts(table: str, rows: DataFrame, values: Mapping[str, str]) -> None:
    """Raise ConfigError as `refuse_lost_values`; `values` are SQL over rows, for texts, by column.

    Runs a job over the rows if there is a column.
    """
    if not values:
        return
    nulls = ", ".join(text_literal(text) for text in _NULL_TEXTS)
    lost = [
        f"{value} IN ({nulls}) OR contains({value}, char(0)) OR "
        # As `_name_bytes`.
        f"length(url_encode(translate({value}, ' *', '//'))) > {_text_bytes_max(column)}"
        for column, value in values.items()
    ]
    (counts,) = rows.selectExpr(*(f"count_if({sql})" for sql in lost)).collect()
    for column, count in zip(values, counts, strict=True):
        _refuse(table, column, count)


def is_other_path(path: str) -> bool:
    """Whether delta-rs may list a file under another path than Delta's log has.

    It encodes what is not ASCII, which Spark writes unchanged.  A commit of delta-rs that removes
    such a file removes nothing, so its rows would be there twice.
    """
    return _OTHER_PATH.search(path) is not None


def _text_bytes_max(column: str) -> int:
    return _NAME_BYTES_MAX - _name_bytes(column) - len("=")


def _name_bytes(text: str) -> int:
    """Return how many bytes a text has at most in the name of a folder, whichever engine writes it.

    Each byte but those of letters, digits and three marks is encoded as three.
    """
    return len(quote(text.replace("~", "/"), safe=""))


def _refuse(table: str, column: str, rows: int) -> None:
    if rows:
        message = (
            "mirror_partition_by: an empty text, one with a null character, "
            "__HIVE_DEFAULT_PARTITION__ and a text of more than 255 encoded bytes, with the "
            "column's name, cannot be partitions"
        )
        hint = (
            "Start with a new output and checkpoint, without this column in "
            "`mirror_partition_by`; `mirror_cluster_by` takes it"
        )
        raise ConfigError(message, hint=hint, table=table, column=column, rows=rows)
