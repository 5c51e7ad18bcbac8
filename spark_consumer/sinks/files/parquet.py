"""Rows in Parquet files: a folder for each table and release, or batch.

`<output>/<sink>/<table>/<release, 12 digits>`, without the table for a sink that has one only.  The
folders of a release are published by its manifest: a reader takes the folders that manifests name,
so it never sees half a release.  A folder is whole when it holds `_SUCCESS`, and is not written
again.  A file that says which release was begun last refuses an output that is ahead of the
checkpoint, or of another query.

A job of Spark's goes on for a while in a run that was replaced, and its last step moves files into
its folder, whole or not.  So each job has a folder of its own below `<output>/_unfinished/<sink>`,
and only the run that is the writer moves that to its place.  It is not below the sink's folder,
where it would look like a table: a source may have one of that name, and a reader of batches looks
for `_SUCCESS` there.  What killed jobs have left is deleted at the next start.

A table's part of a small release is encoded in this process, where a job of Spark's would take a
second; both ways leave one sorted file, with the same rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.sinks.manifest import OutputFiles
from tidegate.spark_consumer.sinks.port import TableVersion
from tidegate.spark_consumer.sinks.tables import Commit, RowWriter, TableRows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


PARQUET = "parquet"
PARQUET_TRANSACTIONS = "parquet_transactions"
"""Names of sinks, and their folders in the output."""

_BEGUN = "_begun.json"
_FILE = "part-00000.snappy.parquet"
_DONE = "_SUCCESS"
"""The last file of a folder, as Spark names it: all other files are complete."""
_UNFINISHED = "_unfinished"


class ParquetFolders(RowWriter):
    """The folders of a sink, whose versions are numbers of releases."""

    def __init__(
        self,
        output: OutputFiles,
        *,
        folder: str,
        is_single: bool = False,
        is_direct: bool = False,
    ) -> None:
        """Take the output of the query, and the sink's folder in it.

        `is_single`: the sink has one table only.  `is_direct`: small releases are written without
        Spark.
        """
        self._output = output
        self._folder = folder
        self._is_single = is_single
        self._is_direct = is_direct

    def open(self, spark: SparkSession, *, query_id: str, release_max: int) -> None:  # noqa: ARG002 - the port's
        """Refuse files of another query, or ahead of this one's checkpoint, with ConfigError."""
        begun = self._output.read_json(f"{self._folder}/{_BEGUN}")
        if begun is None:
            return
        if begun["query_id"] != query_id:
            raise ConfigError(
                "the Parquet files of this output belong to another query",
                hint="Use the checkpoint that they were written with, or a new output",
                found=begun["query_id"],
                expected=query_id,
            )
        if begun["release"] > release_max:
            raise ConfigError(
                "the Parquet files of this output are ahead of the checkpoint",
                hint="Restore the checkpoint's newest state, or use a new output and checkpoint",
                found=begun["release"],
                expected=release_max,
            )
        self._output.delete([f"{_UNFINISHED}/{self._folder}"])

    def begin(self, rows: TableRows, *, commit: Commit) -> None:
        """Name the release, or the batch, before the first of its folders is written."""
        name = f"{self._folder}/{_BEGUN}"
        begun = {"query_id": commit.query_id, "release": commit.release}
        if rows.rows and self._output.read_json(name) != begun:
            self._output.write_json(name, begun)

    def append(self, rows: TableRows, *, commit: Commit) -> bool:
        """Append rows, unless the output has them."""
        path = self._path(rows.table, commit.release)
        if self._output.read(f"{path}/{_DONE}") is not None:
            return False
        if self._is_direct and rows.changes is not None:
            from tidegate.spark_consumer.sinks.files.parquet_bytes import (  # noqa: PLC0415 - optional
                parquet_file,
            )

            # Files that a killed attempt has left, maybe one of Spark's under another name.
            self._output.delete([path])
            self._output.write(f"{path}/{_FILE}", parquet_file(rows.changes, rows.schema()))
        else:
            unfinished = f"{_UNFINISHED}/{self._folder}/{uuid4().hex}"
            rows.frame().write.parquet(self._output.path(unfinished))
            # An object store moves file by file, and this one must be the last.
            self._output.delete([f"{unfinished}/{_DONE}"])
            self._output.move_folder(unfinished, path)
        self._output.write(f"{path}/{_DONE}", b"")
        return True

    def versions(self, rows: TableRows, *, commit: Commit) -> dict[str, TableVersion]:
        """Return the folder of the release, for each source table with changes."""
        path = self._path(rows.table, commit.release)
        return {
            source: TableVersion(path, commit.release, count if rows.is_counted else None)
            for source, count in rows.sources.items()
            if count
        }

    def _path(self, table: str, number: int) -> str:
        above = self._folder if self._is_single else f"{self._folder}/{table}"
        return f"{above}/{number:012d}"
