"""The data files of one table: listed, rewritten by delta-rs in one commit, and deleted.

A rewrite changes no row: its commit says so (`dataChange` is false), so that streams over the table
do not see rows again, and it is that of nobody's release.  Until that commit the new file is
visible to no reader; a kill before it leaves a file that `vacuum` deletes.  Of two rewrites of one
file the later one ends with a conflict.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow
from deltalake import CommitProperties
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, RemoveAction
from pyarrow import parquet
from pyarrow.fs import PyFileSystem

from tidegate.schemas.errors import invariant
from tidegate.spark_consumer.core.compaction import DataFile
from tidegate.spark_consumer.sinks.bounds import bounded_leaves
from tidegate.spark_consumer.sinks.delta.direct_table import DirectTable
from tidegate.spark_consumer.sinks.delta.file_rows import (
    aligned,
    in_order,
    plain_schema,
    statistics,
)

COMPACTION = "tidegate compaction"
"""The metadata of its commits: no JSON, since they are those of no release."""

_INDEXED_COLUMNS = 32
"""Columns of which Delta keeps bounds where a table does not say which."""

_BOUNDED = "delta.dataSkippingStatsColumns"

_PLAIN_PATH = re.compile(r"[A-Za-z0-9_.=-]+(/[A-Za-z0-9_.=-]+)*")
"""Paths within the table that are the same in its log, in delta-rs and in storage.

delta-rs shows others in another form than the log has: a file would be added and none removed.
"""

_NOWHERE = (-1,)
"""The place of a file without bounds, before all others: it is not rewritten."""


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
        known = [name for name in bounds if name in actions.column_names]
        times = actions["modification_time"].cast(pyarrow.int64()).to_pylist()
        rows = actions.select(["path", "size_bytes", "num_records", *parts, *known]).to_pylist()
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
        version = self.version
        for commit in self._table.history():
            if commit.get("version") != version or commit.get("userMetadata") != COMPACTION:
                break
            version -= 1
        return version

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
        """Return the columns of which the log keeps bounds."""
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
    is_ours = (
        _PLAIN_PATH.fullmatch(path) is not None
        and None not in place
        and all(is_text for _, is_text, _ in texts)
    )
    return DataFile(
        path=path,
        size=row["size_bytes"],
        rows=row["num_records"] if is_ours else None,
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
