"""How new tables are laid out: Delta's properties, partitions, liquid clustering.

An existing table is not changed: its owner may change it by SQL, and the run continues.

A partition's value is text in Delta's log and in the name of a folder.  Spark and delta-rs write
numbers with a fraction and times in different forms, and Spark writes some texts as NULL.  The name
of a folder has a limit; S3 and Google Cloud Storage have one for a file's whole key instead.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.sinks.sql import text_literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
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
"""Properties that need no feature of a table; for other properties Spark adds the feature."""

_NESTED = frozenset({"array", "map", "struct"})

_TYPES: Final = frozenset({"long", "boolean", "date", "string"})
"""Types, by Spark's names, that Spark and delta-rs write as the same text."""

_NULL_TEXTS: Final = ("", "__HIVE_DEFAULT_PARTITION__")

_NAME_BYTES_MAX: Final = 255
"""How long a folder's name may be, in the file systems of this machine and in HDFS."""

_WHOLE_KEY = frozenset({"s3", "s3a", "s3n", "gs"})
"""Schemes of stores that know no folders: only the whole key of a file has a limit."""

_KEY_BYTES_MAX: Final = 1_024

_FILE_NAME_BYTES: Final = 128
"""Kept for the name of a file and the folder of Delta's change data: Spark's need 83 together."""

_NULL_FOLDER_BYTES: Final = len("__HIVE_DEFAULT_PARTITION__")
"""The longest name of a value that is not text, too: an INT64 has 20 bytes."""

_OTHER_PATH: Final = re.compile(r"[^\x00-\x7f]|%[89A-Fa-f]")


@dataclass(frozen=True, slots=True)
class TableLayout:
    """The layout of a sink's new tables; columns are by table."""

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
        kinds = {column.name: column.dataType.typeName() for column in schema}
        for name in wanted:
            if name not in kinds or kinds[name] in _NESTED:
                message = f"{setting}: a table cannot be laid out by this column"
                plain = sorted(column for column, kind in kinds.items() if kind not in _NESTED)
                raise ConfigError(
                    message,
                    hint="Name one of its columns that is neither an array nor missing",
                    table=table,
                    column=name,
                    columns=plain,
                )
        return wanted


def unequal_columns(schema: StructType, names: Iterable[str]) -> list[str]:
    """Return the columns among these that Spark and delta-rs write as different partitions."""
    return [name for name in names if schema[name].dataType.typeName() not in _TYPES]


def text_columns(schema: StructType, names: Iterable[str]) -> list[str]:
    """Return the text columns among these; some texts are lost as partition values.

    Columns that the schema lacks are left out: no change has them.
    """
    texts = {field.name for field in schema if field.dataType.typeName() == "string"}
    return [name for name in names if name in texts]


def refuse_lost_values(table: str, values: Mapping[str, Iterable[Any]], *, address: str) -> None:
    """Raise ConfigError for a text that cannot be a partition of the table at an address.

    `values` are the rows' values for each partition column.  Spark writes NULL for some texts, and
    other texts cannot be the name of a folder or the key of an object.
    """
    room = _key_room(address, values)
    for column, of_column in values.items():
        most = _text_bytes_max(column) if room is None else room
        texts = [value for value in of_column if isinstance(value, str)]
        lost = [text in _NULL_TEXTS or "\x00" in text or _name_bytes(text) > most for text in texts]
        _refuse(table, column, sum(lost))
    if room is not None and len(values) > 1:
        sizes = [sum(map(_value_bytes, row)) for row in zip(*values.values(), strict=True)]
        _refuse(table, ", ".join(values), sum(size > room for size in sizes))


def refuse_lost_texts(
    table: str,
    rows: DataFrame,
    values: Mapping[str, str],
    *,
    address: str,
    partitions: Collection[str],
) -> None:
    """Raise ConfigError as `refuse_lost_values`; `values` are SQL over rows, for texts, by column.

    `partitions` are all partition columns.  Runs a job over the rows if one is a text.
    """
    if not values:
        return
    nulls = ", ".join(text_literal(text) for text in _NULL_TEXTS)
    room = _key_room(address, partitions)
    # As `_name_bytes`.
    sizes = {
        column: f"length(url_encode(translate({value}, ' *', '//')))"
        for column, value in values.items()
    }
    lost = [
        f"{value} IN ({nulls}) OR contains({value}, char(0)) OR "
        f"{sizes[column]} > {_text_bytes_max(column) if room is None else room}"
        for column, value in values.items()
    ]
    names = list(values)
    if room is not None and len(partitions) > 1:
        null_bytes = _NULL_FOLDER_BYTES * (len(partitions) - len(values))
        all_texts = " + ".join(f"coalesce({sql}, {_NULL_FOLDER_BYTES})" for sql in sizes.values())
        lost.append(f"{all_texts} + {null_bytes} > {room}")
        names.append(", ".join(partitions))
    (counts,) = rows.selectExpr(*(f"count_if({sql})" for sql in lost)).collect()
    for column, count in zip(names, counts, strict=True):
        _refuse(table, column, count)


def is_other_path(path: str) -> bool:
    """Whether delta-rs may list a file under another path than Delta's log has.

    It encodes characters that are not ASCII, which Spark writes unchanged.  A commit of delta-rs
    that removes such a file removes nothing, so the table would have its rows twice.
    """
    return _OTHER_PATH.search(path) is not None


def _key_room(address: str, columns: Collection[str]) -> int | None:
    """Return how many bytes a row's values have in a file's key; None where folders have a limit.

    `address` is a table's.
    """
    scheme, _, rest = address.partition("://")
    if scheme.lower() not in _WHOLE_KEY:
        return None
    folders = sum(_name_bytes(column) + len("=/") for column in columns)
    table = f"{rest.partition('/')[2].strip('/')}/".encode()
    return _KEY_BYTES_MAX - len(table) - folders - _FILE_NAME_BYTES


def _value_bytes(value: Any) -> int:
    return _name_bytes(value) if isinstance(value, str) else _NULL_FOLDER_BYTES


def _text_bytes_max(column: str) -> int:
    return _NAME_BYTES_MAX - _name_bytes(column) - len("=")


def _name_bytes(text: str) -> int:
    """Return how many bytes a text has at most in the name of a folder, whichever engine writes it.

    Each byte is encoded as three, except letters, digits and three marks.
    """
    return len(quote(text.replace("~", "/"), safe=""))


def _refuse(table: str, column: str, rows: int) -> None:
    if rows:
        raise ConfigError(
            (
                "mirror_partition_by: an empty text, one with a null character, "
                "__HIVE_DEFAULT_PARTITION__ and a text that makes a folder's name longer than 255 "
                "encoded bytes (in S3 and Google Cloud Storage: a file's key longer than 1,024) "
                "cannot be partitions"
            ),
            hint=(
                "Start with a new output and checkpoint, without this column in "
                "`mirror_partition_by`; `mirror_cluster_by` takes it"
            ),
            table=table,
            column=column,
            rows=rows,
        )
