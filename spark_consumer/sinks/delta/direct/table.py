"""One Delta table, written by delta-rs in this process: no plan, no job, no JVM.

delta-rs commits a transaction (application, number) even if the table already has it, unless
another writer commits it at the same moment.  So a handle loads one version, looks for the
transaction in it, and commits on top of that version: a commit in between is a conflict.

Spark and delta-rs both write bounds of a file's values that are wrong, or that the other cannot
read: delta-rs keeps decimals as floating-point numbers and omits NaN, which is Spark's greatest
number, and both cut times to milliseconds.  So delta-rs writes bounds only where they are true for
all readers, and a lookup compares bounds of a few types only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow
from deltalake import (
    ColumnProperties,
    CommitProperties,
    DeltaTable,
    Schema,
    Transaction,
    WriterProperties,
    write_deltalake,
)
from deltalake.fs import DeltaStorageHandler
from pyarrow import compute, dataset, parquet
from pyarrow.fs import PyFileSystem

from tidegate.spark_consumer.sinks.delta.layout import is_other_path
from tidegate.spark_consumer.sinks.tables import Commit

_BATCH_ROWS = 16_384
"""Rows that are read at once while some are looked for: a part of a wide file only."""

_READER_VERSION_MAX = 1
_WRITER_VERSION_MAX = 2
"""The protocol of tables without any feature, with which Tidegate creates its tables."""

_TEXT_BYTES_MAX = 64
"""delta-rs cuts the bounds of longer texts, the upper one upwards; that is its own default."""

_CUT_US = 1_000
"""Bounds of times are cut to milliseconds, by some writers downwards on both sides."""


class DirectTable:
    """One version of the table at an address; `append` or `merge` once."""

    def __init__(
        self,
        address: str,
        *,
        version: int | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """Load a version, the newest if none is named; raises DeltaError if there is no table.

        The address is a path of this machine, or a URI that delta-rs reaches with the options.
        """
        self._options = dict(options or {})
        self._table = DeltaTable(address, version=version, storage_options=self._options)
        self.schema: Any = pyarrow.schema(self._table.schema().to_arrow())

    @staticmethod
    def create(
        address: str,
        *,
        schema: str,
        properties: Mapping[str, str],
        metadata: str,
        partitioned_by: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
    ) -> None:
        """Create a table without rows, unless there is one; `schema` is Delta's, as JSON."""
        DeltaTable.create(
            address,
            schema=Schema.from_json(schema),
            mode="ignore",
            partition_by=list(partitioned_by) or None,
            configuration=dict(properties),
            storage_options=dict(options or {}),
            commit_properties=CommitProperties(custom_metadata={"userMetadata": metadata}),
        )

    @property
    def is_plain(self) -> bool:
        """Whether the table has no feature that a writer or reader must know."""
        protocol = self._table.protocol()
        return (
            protocol.min_reader_version <= _READER_VERSION_MAX
            and protocol.min_writer_version <= _WRITER_VERSION_MAX
        )

    @property
    def partition_columns(self) -> list[str]:
        """The columns that the table is partitioned by."""
        return list(self._table.metadata().partition_columns)

    @property
    def has_other_paths(self) -> bool:
        """Whether delta-rs may list a file under another path than the log has (`partitions`)."""
        actions: Any = pyarrow.table(self._table.get_add_actions())
        return any(map(is_other_path, actions["path"].to_pylist()))

    def files(self, part: Mapping[str, Any] | None = None) -> list[tuple[str, int]]:
        """Return the version's data files and their sizes, in all partitions or in one."""
        wanted = {f"partition.{name}": value for name, value in (part or {}).items()}
        actions: Any = pyarrow.table(self._table.get_add_actions(flatten=True))
        if not actions.num_rows:
            return []
        # Both list the files in the order of the log.
        rows = actions.select(["size_bytes", *wanted]).to_pylist()
        return [
            (file, row["size_bytes"])
            for file, row in zip(self._table.file_uris(), rows, strict=True)
            if all(row[name] == value for name, value in wanted.items())
        ]

    def files_of(self, column: str, *, above: int, through: int) -> list[tuple[str, int]]:
        """Return files that may have numbers within the bounds in a column, and their sizes.

        A file without bounds is one of them.
        """
        actions: Any = pyarrow.table(self._table.get_add_actions(flatten=True))
        names = [f"min.{column}", f"max.{column}", "size_bytes"]
        blank = [None] * actions.num_rows
        columns = [
            actions[name].to_pylist() if name in actions.column_names else blank for name in names
        ]
        # Both list the files in the order of the log.
        rows = zip(self._table.file_uris(), *columns, strict=True)
        return [
            (file, size)
            for file, low, high, size in rows
            if (low is None or low <= through) and (high is None or high > above)
        ]

    def content(self, file: str) -> list[dict[str, Any]]:
        """Return the rows of one of the files."""
        rows: list[dict[str, Any]] = parquet.read_table(
            self._opened(file), partitioning=None, coerce_int96_timestamp_unit="us"
        ).to_pylist()
        return rows

    def has_long_timestamps(self, file: str) -> bool:
        """Whether one of the files has timestamps of 96 bits.

        delta-rs reads them as nanoseconds since 1970, which overflow outside of 1677 to 2262: a
        MERGE that copies such a row would change it.
        """
        schema = parquet.read_metadata(self._opened(file)).schema
        return any(schema.column(n).physical_type == "INT96" for n in range(len(schema)))

    def has(self, commit: Commit) -> bool:
        """Whether the version has the release's transaction, or a later one of the same writer."""
        number = self._table.transaction_version(commit.application)
        return number is not None and number >= commit.release

    def rows(self, changes: Iterable[Mapping[str, Any]], columns: Iterable[str]) -> Any:
        """Return rows as Arrow has them, in the types of the table's columns."""
        wanted = pyarrow.schema([self.schema.field(name) for name in columns])
        return pyarrow.Table.from_pylist(list(changes), schema=wanted)

    def values(self, column: str, values: Sequence[Any]) -> Any:
        """Return values as Arrow has them, in the type of the table's column."""
        return pyarrow.array(values, self.schema.field(column).type)

    @staticmethod
    def texts(values: Sequence[str]) -> Any:
        """Return texts as Arrow has them."""
        return pyarrow.array(values, pyarrow.string())

    @staticmethod
    def flags(values: Sequence[bool]) -> Any:
        """Return truth values as Arrow has them."""
        return pyarrow.array(values, pyarrow.bool_())

    @staticmethod
    def either(
        flags: Sequence[bool], values: Any, others: Any, places: Sequence[int | None]
    ) -> Any:
        """Return the values, but where a flag is not set the value at a place in another column.

        Where the place is None, the result is null.
        """
        taken = (
            others.combine_chunks().cast(values.type).take(pyarrow.array(places, pyarrow.int64()))
        )
        return compute.if_else(pyarrow.array(flags, pyarrow.bool_()), values, taken)

    @staticmethod
    def together(columns: Mapping[str, Any]) -> Any:
        """Return columns of Arrow as rows, for `merge`."""
        return pyarrow.table(dict(columns))

    def append(self, rows: Any, *, commit: Commit) -> None:
        """Append in one commit, unless the table has it; raises DeltaError for a conflict."""
        if not self.has(commit):
            write_deltalake(
                self._table,
                rows,
                mode="append",
                commit_properties=_properties(commit),
                writer_properties=writer_properties(self.schema),
            )

    def merge(
        self,
        rows: Any,
        *,
        same_row: str,
        is_deleted: str,
        updated: Mapping[str, str],
        is_inserted: str,
        inserted: Mapping[str, str],
        commit: Commit,
    ) -> None:
        """Merge in one commit, unless the table has it or nothing would change.

        The expressions are SQL over `t`, the table, and `s`, the rows.  Raises DeltaError for a
        conflict.
        """
        if self.has(commit):
            return
        merger = self._table.merge(
            rows,
            same_row,
            source_alias="s",
            target_alias="t",
            commit_properties=_properties(commit),
            writer_properties=writer_properties(self.schema),
        )
        merger = merger.when_matched_delete(is_deleted).when_matched_update(dict(updated))
        merger.when_not_matched_insert(dict(inserted), predicate=is_inserted).execute()

    def find_rows(
        self,
        column: str,
        values: Any,
        columns: Iterable[str],
        *,
        part: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return these columns of the rows whose `column` has one of the values.

        Searches all rows, or one partition.  NULL matches NULL.
        """
        names = list(columns)
        read = list(dict.fromkeys([column, *names]))
        files = self._files_with(column, values, part or {})
        # Without a filter, which Arrow would compare with the bounds of files and row groups first:
        # delta-rs's are not true for each type, and a file's own types may have no comparison.
        batches = [
            batch.filter(compute.is_in(batch.column(column), values))
            for batch in files.to_batches(columns=read, batch_size=_BATCH_ROWS)
        ]
        schema = pyarrow.schema([files.schema.field(name) for name in read])
        return pyarrow.Table.from_batches(batches, schema).select(names)

    def _files_with(self, column: str, values: Any, part: Mapping[str, Any]) -> Any:
        """Return the files, as Arrow's dataset, that may have one of the values in a column."""
        whole = self._table.to_pyarrow_dataset()
        actions: Any = pyarrow.table(self._table.get_add_actions(flatten=True))
        out = paths_without(values, actions, column)
        in_part: Any = None
        for name, value in part.items():
            same = dataset.field(name) == value
            in_part = same if in_part is None else in_part & same
        kept = [
            fragment for fragment in whole.get_fragments(filter=in_part) if fragment.path not in out
        ]
        return dataset.FileSystemDataset(kept, whole.schema, whole.format, whole.filesystem)

    def _opened(self, file: str) -> Any:
        """Return one of the files as pyarrow takes it."""
        root = self._table.table_uri
        if not self._options:
            # Of an address delta-rs encodes the table's part alone: a space is %20 in it.
            encoded = root.removeprefix("file://")
            is_inside = file.startswith(encoded)
            return f"{unquote(encoded)}{file.removeprefix(encoded)}" if is_inside else file
        inside = file.removeprefix(root).lstrip("/")
        files = PyFileSystem(DeltaStorageHandler(root, self._options))
        return files.open_input_file(inside)


def _properties(commit: Commit) -> CommitProperties:
    return CommitProperties(
        custom_metadata={"userMetadata": commit.metadata},
        app_transactions=[Transaction(commit.application, commit.release)],
    )


def writer_properties(schema: Any) -> WriterProperties:
    """Return how delta-rs writes files of these columns: with bounds only where they are true.

    It knows no names of columns within a record: all of these have bounds, or none.
    """
    has_nested = all(_is_bounded(field.type) for field in schema if _is_record(field.type))
    chosen = {
        field.name: ColumnProperties(
            statistics_enabled="PAGE" if _is_bounded(field.type) else "NONE"
        )
        for field in schema
        if not _is_record(field.type)
    }
    default = ColumnProperties(statistics_enabled="PAGE" if has_nested else "NONE")
    return WriterProperties(
        compression="SNAPPY",
        statistics_truncate_length=_TEXT_BYTES_MAX,
        default_column_properties=default,
        column_properties=chosen,
    )


def paths_without(values: Any, actions: Any, column: str) -> set[str]:
    """Return the paths of files whose bounds show that a column has none of the values.

    `actions` are the files as delta-rs lists them.  A file without bounds is never among them; if
    NULL is one of the values, no file is.
    """
    kind, names = values.type, (f"min.{column}", f"max.{column}")
    if values.null_count or not (_is_number(kind) and set(names) <= set(actions.column_names)):
        return set()
    if any(actions.schema.field(name).type != kind for name in names):
        return set()
    cut = _CUT_US if pyarrow.types.is_timestamp(kind) else 0
    wanted = sorted(_numbers(values))
    bounds = zip(
        actions["path"].to_pylist(), *(_numbers(actions[name]) for name in names), strict=True
    )
    return {
        path
        for path, low, high in bounds
        if low is not None and high is not None and not _any_within(wanted, low - cut, high + cut)
    }


def _any_within(ascending: list[int], low: int, high: int) -> bool:
    place = bisect_left(ascending, low)
    return place < len(ascending) and ascending[place] <= high


def _numbers(values: Any) -> list[Any]:
    """Return dates as days and times as microseconds; whole numbers stay unchanged."""
    if pyarrow.types.is_date32(values.type):
        values = values.cast(pyarrow.int32())
    numbers: list[Any] = values.cast(pyarrow.int64()).to_pylist()
    return numbers


def _is_number(kind: Any) -> bool:
    """Whether bounds of a type are compared here: they are numbers, which no writer rounds."""
    types = pyarrow.types
    is_time = types.is_timestamp(kind) and kind.unit == "us"
    return bool(types.is_signed_integer(kind) or types.is_date32(kind) or is_time)


def _is_record(kind: Any) -> bool:
    return bool(pyarrow.types.is_struct(kind))


def _is_bounded(kind: Any) -> bool:
    """Whether delta-rs writes bounds of a type that are true for every reader."""
    types = pyarrow.types
    if _is_record(kind):
        # No reader compares what is within an array.
        return all(_is_bounded(field.type) for field in kind if not types.is_list(field.type))
    return bool(
        types.is_signed_integer(kind)
        or types.is_boolean(kind)
        or types.is_date32(kind)
        or types.is_timestamp(kind)
        or types.is_string(kind)
        or types.is_binary(kind)
    )
