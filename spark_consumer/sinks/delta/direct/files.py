"""The data files of one table: listed, rewritten by delta-rs in one commit, and deleted.

A rewrite changes no row: its commit says so (`dataChange` is false), so that streams over the table
do not see rows again, and it belongs to no release.  Until that commit the new file is visible to
no reader; a kill before it leaves a file that `vacuum` deletes.  The later of two rewrites of one
file ends with a conflict.  Values stay in Arrow's form from file to file, so that none passes
through a type with other bounds.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow
from deltalake import CommitProperties
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, RemoveAction
from pyarrow import compute, parquet
from pyarrow.fs import PyFileSystem

from tidegate.schemas.errors import invariant
from tidegate.spark_consumer.core.compaction import DataFile
from tidegate.spark_consumer.sinks.delta.direct.table import DirectTable
from tidegate.spark_consumer.sinks.files.parquet_bytes import bounded_leaves

COMPACTION = "tidegate compaction"
"""The metadata of its commits: not JSON, since they belong to no release."""

_INDEXED_COLUMNS = 32
"""How many columns have bounds where a table does not choose them."""

_BOUNDED = "delta.dataSkippingStatsColumns"

_PLAIN_PATH = re.compile(r"[A-Za-z0-9_.=-]+(/[A-Za-z0-9_.=-]+)*")
"""Matches paths within the table that are the same in its log, in delta-rs and in storage.

delta-rs shows other paths in a different form than the log: a file would be added and none removed.
"""

_COMMITS_READ_FIRST = 16
_COMMITS_READ_FACTOR = 8

_NOWHERE = (-1,)
"""The place of a file without bounds, before all other files: it is not rewritten."""

_ELEMENT = "element"
_TEXT_MAX = 32
_MS = timedelta(milliseconds=1)


class DirectFiles(DirectTable):
    """The files of one version of a table; `rewrite` once."""

    @property
    def version(self) -> int:
        """The version that was loaded."""
        return int(self._table.version())

    def data_files(self, order: Sequence[str]) -> list[DataFile]:
        """Return the version's files.

        With `order`, columns of numbers by which the rows of all files are sorted, files are placed
        by the bounds that the log has of them: of two columns, the first one's least and greatest
        number, then the least of the second.  Without it, by their age.
        """
        actions: Any = pyarrow.table(self._table.get_add_actions(flatten=True))
        if not actions.num_rows:
            return []
        parts = [name for name in actions.column_names if name.startswith("partition.")]
        bounds = [f"{end}.{name}" for name in order[:1] for end in ("min", "max")]
        bounds += [f"min.{name}" for name in order[1:]]
        bounded = [name for name in bounds if name in actions.column_names]
        times = actions["modification_time"].cast(pyarrow.int64()).to_pylist()
        rows = actions.select(["path", "size_bytes", "num_records", *parts, *bounded]).to_pylist()
        return [
            _described(row, modified_ms, bounds, parts)
            for row, modified_ms in zip(rows, times, strict=True)
        ]

    def rewrite(
        self,
        run: Sequence[DataFile],
        *,
        order: Sequence[str],
        now_ms: int,
        before_commit: Callable[[], None],
    ) -> int:
        """Replace files of one partition, in their order, by one with the same rows.

        Returns how many rows that were.  `before_commit` is called when the new file is written; if
        it raises, nothing has changed.  Raises DeltaError if another commit came in between, and
        OtherColumns for a file that cannot be rewritten.
        """
        first = run[0]
        partition = dict(first.partition)
        invariant(
            all(file.partition == first.partition for file in run), "files of several partitions"
        )
        schema = plain_schema(self.schema, without=partition)
        rows = pyarrow.concat_tables([aligned(self._rows_of(file.path), schema) for file in run])
        listed = sum(file.rows or 0 for file in run)
        invariant(
            rows.num_rows == listed,
            "a file has other rows than its table's log lists",
            listed=listed,
        )
        if order:
            rows = in_order(rows, order)
        folder, slash, _ = first.path.rpartition("/")
        path = f"{folder}{slash}part-00000-{uuid4()}-c000.snappy.parquet"
        size = self._write(path, rows)
        before_commit()
        # The place among the files of a stream's first batch: they are read by age.
        modified_ms = max(file.modified_ms for file in run)
        bounds = statistics(rows, self._bounded_columns())
        self._table.create_write_transaction(
            [
                AddAction(path, size, partition, modified_ms, data_change=False, stats=bounds),
                *(
                    RemoveAction(
                        file.path,
                        data_change=False,
                        deletion_timestamp=now_ms,
                        size=file.size,
                        partition_values=partition,
                    )
                    for file in run
                ),
            ],
            mode="append",
            schema=self._table.schema(),
            partition_by=list(self._table.metadata().partition_columns) or None,
            commit_properties=CommitProperties(
                custom_metadata={"userMetadata": COMPACTION}, max_commit_retries=0
            ),
        )
        return int(rows.num_rows)

    def load_version_at(self, time: datetime) -> int:
        """Load the version of a time, the first that is kept if all are younger; return it."""
        self._table.load_as_version(time)
        return self.version

    def same_since(self) -> int:
        """Return the first version with the rows of the loaded one: only rewrites followed it."""
        limit = _COMMITS_READ_FIRST
        while (rewrites := self._rewrites_among(limit)) == limit:
            limit *= _COMMITS_READ_FACTOR
        return self.version - rewrites

    def _rewrites_among(self, limit: int) -> int:
        """Return how many of the newest commits are rewrites, up to another commit or the limit.

        A whole log may have a commit for each release of a month, and delta-rs reads every file.
        """
        rewrites, version = 0, self.version
        for commit in self._table.history(limit):
            if commit.get("version") != version - rewrites:
                break
            if commit.get("userMetadata") != COMPACTION:
                break
            rewrites += 1
        return rewrites

    def vacuum(self, *, retention_hours: int) -> int:
        """Delete files that no version of these last hours needs; return how many."""
        return len(
            self._table.vacuum(
                retention_hours=retention_hours,
                dry_run=False,
                enforce_retention_duration=False,
                full=True,
            )
        )

    def _rows_of(self, path: str) -> Any:
        file = self._opened(self._whole(path))
        return parquet.read_table(file, partitioning=None, coerce_int96_timestamp_unit="us")

    def _whole(self, path: str) -> str:
        """Return a file's whole path, as delta-rs lists it."""
        return f"{self._table.table_uri.removeprefix('file://').rstrip('/')}/{path}"

    def _write(self, path: str, rows: Any) -> int:
        """Write a new file, whole and durable; return its size."""
        if self._options:
            files = PyFileSystem(DeltaStorageHandler(self._table.table_uri, self._options))
            with files.open_output_stream(path) as stream:
                _write_parquet(rows, stream)
            return int(files.get_file_info(path).size)
        local = Path(self._opened(self._whole(path)))
        with local.open("xb") as stream:
            _write_parquet(rows, stream)
            stream.flush()
            os.fsync(stream.fileno())
        return local.stat().st_size

    def _bounded_columns(self) -> list[str]:
        """Return the columns that have bounds in the log."""
        chosen = self._table.metadata().configuration.get(_BOUNDED)
        if chosen:
            return [name.strip() for name in chosen.split(",")]
        return list(self.schema.names)[:_INDEXED_COLUMNS]


def _write_parquet(rows: Any, stream: Any) -> None:
    bounded = bounded_leaves(rows.schema)
    parquet.write_table(rows, stream, store_schema=False, write_statistics=bounded)


def _described(
    row: Mapping[str, Any], modified_ms: int, bounds: Sequence[str], parts: Sequence[str]
) -> DataFile:
    path = row["path"]
    place = tuple(row.get(name) for name in bounds) or (modified_ms, path)
    texts = [(part.removeprefix("partition."), *_texts(row[part])) for part in parts]
    is_own_file = (
        _PLAIN_PATH.fullmatch(path) is not None
        and None not in place
        and all(is_text for _, is_text, _ in texts)
    )
    return DataFile(
        path=path,
        size=row["size_bytes"],
        rows=row["num_records"] if is_own_file else None,
        place=_NOWHERE if None in place else place,
        modified_ms=modified_ms,
        partition=tuple((name, text) for name, _, text in texts),
    )


def _texts(value: Any) -> tuple[bool, str | None]:
    """Return whether the text of a partition's value in the log is known, and the text."""
    if value is None:
        return True, None
    if isinstance(value, bool):
        return True, str(value).lower()
    if isinstance(value, (int, str)) or type(value) is date:
        return True, str(value)
    return False, None


class OtherColumns(Exception):  # noqa: N818 - an answer, not an error
    """A file has a column that its table does not have; the text names it."""


def plain_schema(schema: Any, *, without: Iterable[str] = ()) -> Any:
    """Return a table's columns in types that Parquet has for every reader, all nullable.

    Texts and bytes have Arrow's large types, for more than 2 GiB in one column: a small file whose
    values compress well may hold that.  Parquet does not distinguish large types.
    """
    left_out = set(without)
    return pyarrow.schema(
        [(field.name, _plain(field.type)) for field in schema if field.name not in left_out]
    )


def aligned(rows: Any, schema: Any) -> Any:
    """Return a file's rows with the columns of a schema; columns that the file lacks are null.

    Raises OtherColumns for a column that the schema lacks.
    """
    arrays = dict(zip(rows.column_names, rows.columns, strict=True))
    _refuse_others(arrays, schema)
    columns = [
        # Chunk by chunk: together they may have more bytes than their type takes.
        pyarrow.chunked_array(
            [_as_type(chunk, field.type) for chunk in arrays[field.name].chunks], field.type
        )
        if field.name in arrays
        else pyarrow.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pyarrow.Table.from_arrays(columns, schema=schema)


def in_order(rows: Any, columns: Sequence[str]) -> Any:
    """Return rows sorted by columns of numbers; sorted rows are returned unchanged."""
    if _is_sorted(rows, columns):
        return rows
    return rows.sort_by([(column, "ascending") for column in columns])


def statistics(rows: Any, columns: Iterable[str]) -> str:
    """Return the number of rows and the bounds of these columns, as Delta's log has them.

    Columns of types whose bounds need more than a comparison have none: readers then read the file.
    """
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name in columns:
        if name not in rows.column_names or not _has_bounds(rows.schema.field(name).type):
            continue
        nulls[name] = rows[name].null_count
        extremes = compute.min_max(rows[name]).as_py()
        bounds = _low(extremes["min"]), _high(extremes["max"])
        if None not in bounds:
            least[name], most[name] = bounds
    content = {
        "numRecords": rows.num_rows,
        "minValues": least,
        "maxValues": most,
        "nullCount": nulls,
    }
    # Unescaped: Arrow's reader in Rust decodes escapes of many characters beyond 16 bits wrongly.
    return json.dumps(content, ensure_ascii=False)


def _plain(kind: Any) -> Any:
    types = pyarrow.types
    if types.is_struct(kind):
        return pyarrow.struct([(field.name, _plain(field.type)) for field in kind])
    if types.is_list(kind) or types.is_large_list(kind):
        return pyarrow.list_(pyarrow.field(_ELEMENT, _plain(kind.value_type)))
    if types.is_string(kind) or types.is_string_view(kind):
        return pyarrow.large_string()
    if types.is_binary(kind) or types.is_binary_view(kind):
        return pyarrow.large_binary()
    return kind


def _as_type(values: Any, kind: Any) -> Any:
    if not pyarrow.types.is_struct(kind) or not pyarrow.types.is_struct(values.type):
        return values if values.type == kind else values.cast(kind)
    have = {field.name: n for n, field in enumerate(values.type)}
    _refuse_others(have, kind)
    # Not `field()`: of a slice it returns all values.
    inner = values.flatten()
    children = [
        _as_type(inner[have[field.name]], field.type)
        if field.name in have
        else pyarrow.nulls(len(values), field.type)
        for field in kind
    ]
    return pyarrow.StructArray.from_arrays(children, fields=list(kind), mask=values.is_null())


def _refuse_others(have: Iterable[str], want: Any) -> None:
    extra = sorted(set(have).difference(field.name for field in want))
    if extra:
        raise OtherColumns(", ".join(extra))


def _is_sorted(rows: Any, columns: Sequence[str]) -> bool:
    """Whether the rows ascend, or are equal, by the columns in their order."""
    last = max(rows.num_rows - 1, 0)
    follows: Any = True
    for column in reversed(columns):
        before, after = rows[column].slice(0, last), rows[column].slice(1)
        same = compute.equal(after, before)
        follows = compute.or_(compute.greater(after, before), compute.and_(same, follows))
    # Of no comparison `all` is null; a null in a column leaves it null as well.
    return last == 0 or compute.all(follows, skip_nulls=False).as_py() is True


def _has_bounds(kind: Any) -> bool:
    types = pyarrow.types
    return bool(
        types.is_integer(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_date32(kind)
        or (types.is_timestamp(kind) and kind.tz is not None)
    )


def _low(value: Any) -> Any:
    """Return a bound that is not above a value, in the form of Delta's log; None without one."""
    if isinstance(value, datetime):
        return _text_of_time(value)
    if isinstance(value, date):
        return value.isoformat()
    return value[:_TEXT_MAX] if isinstance(value, str) else value


def _high(value: Any) -> Any:
    """Return a bound that is not below a value; None without one."""
    if isinstance(value, datetime):
        try:
            return _text_of_time(value + _MS if value.microsecond % 1_000 else value)
        except OverflowError:
            return None
    if isinstance(value, date):
        return value.isoformat()
    return None if isinstance(value, str) and len(value) > _TEXT_MAX else value


def _text_of_time(value: datetime) -> str:
    """Return a time to the millisecond, which is all that readers take."""
    utc = value.astimezone(UTC).replace(tzinfo=None)
    return f"{utc.isoformat(timespec='milliseconds')}Z"
