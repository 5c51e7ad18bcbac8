"""Decides whether delta-rs may write the tables of an output, and which of them it may not.

Spark writes the rest: an output that delta-rs does not reach, a table with a feature of Delta's
that Tidegate does not use, a mirror that is large or has timestamps in Spark's form.  Both write
the same tables, so any release may be written by either.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from heapq import merge
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import structlog

from tidegate.program.extras import is_installed
from tidegate.spark_consumer.checkpoint.store_access import StoreAccess
from tidegate.spark_consumer.core.sink_names import CHANGELOG
from tidegate.spark_consumer.sinks.delta.direct.place import DirectPlace, OnlySpark, find_place
from tidegate.spark_consumer.sinks.delta.layout import unequal_columns
from tidegate.spark_consumer.sinks.manifest import Manifest

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from tidegate.spark_consumer.sinks.delta.direct.table import DirectTable


_MIRROR_BYTES_MAX = 256 * 1024**2
"""delta-rs rewrites a mirror in this process; Spark spreads it over its tasks and to disk."""

_ROWS_MAX, _BYTES_MAX = 10_000, 16 * 1024**2

_COMPRESSION = 4
"""Estimate: the largest ratio of a changelog's content to the size of its files."""

_KEYS_OF_SPARK = frozenset({"float", "double"})
"""For Spark, NaN equals NaN and 0 equals -0; not so in a join of delta-rs."""

_OTHER_SPELLING = "the table spells its columns in another way"
_MORE_COLUMNS = "the table has columns besides ours"

_log = structlog.get_logger(__name__)

_PLACE = itemgetter("ordinal")


def find_direct_way(
    output: str, *, rows_max: int, bytes_max: int = _BYTES_MAX, access: StoreAccess | None = None
) -> DirectWay | None:
    """Return the writer of small releases without Spark, or None; logs once why there is none.

    `output` is an absolute path or URI, `rows_max` the changes of the largest small release, and
    `bytes_max` the size of their keys and values.  `access` is how Spark's session reaches an
    output in an object store; raises UnreachableError if it does not.
    """
    missing = [name for name in ("deltalake", "pyarrow") if not is_installed(name)]
    if not rows_max:
        reason = "small_release_rows_max is 0"
    elif missing:
        reason = f"not installed: {', '.join(missing)}"
    else:
        try:
            return DirectWay(find_place(output, access), rows_max=rows_max, bytes_max=bytes_max)
        except OnlySpark as only_spark:
            reason = str(only_spark)
    _log.info("small releases are written by Spark", reason=reason)
    return None


class DirectWay:
    """Opens the tables of an output for delta-rs; blocks while it reads their logs."""

    def __init__(
        self, place: DirectPlace, *, rows_max: int = _ROWS_MAX, bytes_max: int = _BYTES_MAX
    ) -> None:
        """Take where the output is, and how large a small release is."""
        self.rows_max = rows_max
        self._bytes_max = bytes_max
        self._place = place
        self._known_files: dict[str, frozenset[str]] = {}
        """By mirror, the files of its last version that were found without long timestamps."""
        self._refused: set[tuple[str, str]] = set()

    def create(
        self,
        path: str,
        *,
        schema: StructType,
        properties: Mapping[str, str],
        metadata: str,
        partitioned_by: Sequence[str] = (),
    ) -> None:
        """Create a table unless it exists; `metadata` is the text of the commit's `userMetadata`.

        In a young JVM Spark takes seconds for each.
        """
        from tidegate.spark_consumer.sinks.delta.direct.table import (  # noqa: PLC0415 - optional
            DirectTable,
        )

        place = self._place
        DirectTable.create(
            f"{place.address}/{path}",
            schema=schema.json(),
            properties=properties,
            metadata=metadata,
            partitioned_by=partitioned_by,
            options=place.options(),
        )

    def table(
        self, path: str, *, schema: StructType, version: int | None = None
    ) -> DirectTable | None:
        """Return a table to read or append to, or None if only Spark may.

        `path` is relative to the output.  `schema` are the columns that are written.
        """
        table = self._opened(path, version)
        if not table.is_plain:
            self._refuse(path, "the table has features of Delta's")
            return None
        difference = _difference(table.schema, schema)
        if difference is not None:
            self._refuse(path, difference)
            return None
        return table

    def changes(self, path: str, *, after: int, through: int) -> list[dict[str, Any]] | None:
        """Return a changelog's rows of the releases after one up to another, in any order.

        Values are Python's.  None if only Spark may read them, or if there may be too many bytes.
        """
        table = self._opened(path)
        if not table.is_plain:
            self._refuse(path, "the table has features of Delta's")
            return None
        files = table.files_of("release", above=after, through=through)
        if sum(size for _, size in files) * _COMPRESSION > self._bytes_max:
            return None
        return [
            row
            for file, _ in files
            for row in table.content(file)
            if after < row["release"] <= through
        ]

    def mirror(
        self,
        path: str,
        *,
        schema: StructType,
        keys: Sequence[str],
        version: int | None = None,
        part: Mapping[str, Any] | None = None,
    ) -> DirectTable | None:
        """Return a table to merge into, or None if only Spark may; as `table`.

        Where a merge changes the rows of one partition only, `part` names it, by column.
        """
        if _KEYS_OF_SPARK & {schema[key].dataType.typeName() for key in keys}:
            self._refuse(path, "a key is a floating-point number")
            return None
        table = self.table(path, schema=schema, version=version)
        if table is None:
            return None
        if unequal_columns(schema, table.partition_columns):
            self._refuse(path, "the table is partitioned by a type that delta-rs writes otherwise")
            return None
        if table.partition_columns and table.has_other_paths:
            self._refuse(path, "a partition has a name that is not ASCII")
            return None
        files = table.files(part)
        if sum(size for _, size in files) > _MIRROR_BYTES_MAX:
            self._refuse(path, f"the table is larger than {_MIRROR_BYTES_MAX} bytes")
            return None
        if "timestamp" in schema.simpleString() and self._has_long_timestamps(path, table, files):
            self._refuse(path, "the table has timestamps of 96 bits")
            return None
        return table

    def _opened(self, path: str, version: int | None = None) -> DirectTable:
        from tidegate.spark_consumer.sinks.delta.direct.table import (  # noqa: PLC0415 - optional
            DirectTable,
        )

        place = self._place
        return DirectTable(f"{place.address}/{path}", version=version, options=place.options())

    def _has_long_timestamps(
        self, path: str, table: DirectTable, files: Sequence[tuple[str, int]]
    ) -> bool:
        names = frozenset(file for file, _ in files)
        new = names - self._known_files.get(path, frozenset())
        if any(table.has_long_timestamps(file) for file in new):
            return True
        # Without the files that the mirror had before: each small release replaces one.
        self._known_files[path] = names
        return False

    def _refuse(self, path: str, reason: str) -> None:
        if (path, reason) not in self._refused:
            self._refused.add((path, reason))
            _log.info("small releases of a table are written by Spark", table=path, reason=reason)


def _difference(have: Any, want: StructType) -> str | None:
    """Return why a table's columns are not those that are written, or None.

    Arrow would leave out a field that the table spells differently, and delta-rs would not fill a
    further field of the table with null.
    """
    from pyspark.sql.types import StructType as Record  # noqa: PLC0415 - where Spark runs

    fields = {field.name: field.type for field in have}
    if not {field.name for field in want} <= fields.keys():
        return _OTHER_SPELLING
    inner = [
        _difference(fields[field.name].fields, field.dataType)
        for field in want
        if isinstance(field.dataType, Record)
    ]
    if _OTHER_SPELLING in inner:
        return _OTHER_SPELLING
    return _MORE_COLUMNS if len(fields) > len(want) or _MORE_COLUMNS in inner else None


def release_rows(
    direct: DirectWay, manifest: Manifest, tables: Collection[str] = ()
) -> Iterator[Mapping[str, Any]] | None:
    """Return a release's changes over its tables in commit order, each with its `table`.

    `tables` are those that are wanted; empty: all.  Values are Python's.  None if the release may
    be too large for `direct`, or only Spark can read one of the tables.
    """
    rows: list[list[Mapping[str, Any]]] = []
    for table, sinks in manifest.tables.items():
        version = sinks.get(CHANGELOG)
        if version is None or not version.rows or (tables and table not in tables):
            continue
        changes = direct.changes(version.path, after=manifest.release - 1, through=manifest.release)
        if changes is None:
            return None
        rows.append(sorted(({**change, "table": table} for change in changes), key=_PLACE))
    return merge(*rows, key=_PLACE)
