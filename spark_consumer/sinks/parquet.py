"""Every change as a row in Parquet files: a folder for each table and release.

`<output>/parquet/<table>/<release, 12 digits>`, published by the release's manifest: a reader takes
the folders that manifests name, so it never sees half a release.  A file that says which release
was begun last refuses an output that is ahead of the checkpoint, or of another query.

A table's part of a small release is encoded in this process, where a job of Spark's would take a
second; both ways leave one sorted file, with the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.sinks.delta.changelog import sorted_changes
from tidegate.spark_consumer.sinks.handed_batch import HandedBatch
from tidegate.spark_consumer.sinks.port import AnyTable, CollectedTable, Release, TableVersion
from tidegate.spark_consumer.sinks.tables import for_each_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


PARQUET = "parquet"
"""Name of the sink, and its folder in the output."""

_BEGUN = "_begun.json"
_FILE = "part-00000.snappy.parquet"
_DONE = "_SUCCESS"
"""Spark's: the last file of a folder, written when all others are there."""


class OutputFolder(Protocol):
    """The output, as far as the sink looks at it besides through Spark."""

    def path(self, name: str) -> str:
        """Return the whole path of a name, for Spark's writers."""
        ...

    def read(self, name: str) -> bytes | None:
        """Return a file's bytes, or None if there is no such file."""
        ...

    def read_json(self, name: str) -> dict[str, Any] | None:
        """Return a file's content, or None if there is no such file."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """Write or replace a file, whole or not at all."""
        ...

    def write_json(self, name: str, content: object) -> None:
        """Do as `write` with content that JSON can hold."""
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Delete files and folders; missing ones are no error."""
        ...


class ReleaseFolders:
    """The folders of a sink, and the file beside them that names the release begun last."""

    def __init__(self, output: OutputFolder, *, folder: str) -> None:
        """Take the output of the query, and the sink's folder in it."""
        self._output = output
        self._begun = f"{folder}/{_BEGUN}"

    def open(self, *, query_id: str, release_max: int) -> None:
        """Refuse files of another query, or ahead of this one's checkpoint, with ConfigError."""
        begun = self._output.read_json(self._begun)
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

    def begin(self, release: Release | HandedBatch) -> None:
        """Name the release, or the batch, before the first of its folders is written."""
        begun = {"query_id": release.query_id, "release": release.number}
        if self._output.read_json(self._begun) != begun:
            self._output.write_json(self._begun, begun)

    def write(self, path: str, rows: Callable[[], DataFrame]) -> None:
        """Write a folder, unless all of it is there."""
        if self._output.read(f"{path}/{_DONE}") is None:
            rows().write.mode("overwrite").parquet(self._output.path(path))

    def write_file(self, path: str, content: Callable[[], bytes]) -> None:
        """Write a folder with one file, unless it is there."""
        if self._output.read(f"{path}/{_DONE}") is None:
            # Whatever a killed attempt has left, also one of Spark's, under another name.
            self._output.delete([path])
            self._output.write(f"{path}/{_FILE}", content())
            self._output.write(f"{path}/{_DONE}", b"")


class ParquetSink:
    """Writes the folders of a release; the output is as after one write however often it is."""

    name = PARQUET

    def __init__(self, spark: SparkSession, output: OutputFolder, *, is_direct: bool) -> None:
        """Take the output of the query, and whether small releases are written without Spark."""
        self._spark = spark
        self._is_direct = is_direct
        self._folders = ReleaseFolders(output, folder=PARQUET)

    def open(self, *, query_id: str, release_max: int) -> None:
        """Refuse files of another query, or ahead of this one's checkpoint, with ConfigError."""
        self._folders.open(query_id=query_id, release_max=release_max)

    def write(self, release: Release) -> Mapping[str, TableVersion]:
        """Write what is not there yet; a table without a change gets no folder.

        The versions that it returns are numbers of releases.
        """
        changed = [topic for topic, one in release.tables.items() if one.rows]
        if changed:
            self._folders.begin(release)

        def write(topic: str) -> None:
            one, path = release.tables[topic], _path(release.tables[topic], release.number)
            if self._is_direct and isinstance(one, CollectedTable):
                self._folders.write_file(path, lambda: _encoded(one))
            else:
                self._folders.write(path, lambda: sorted_changes(one))

        for_each_table(self._spark, changed, write)
        return {
            one.schemas.table: TableVersion(_path(one, release.number), release.number, one.rows)
            for one in map(release.tables.__getitem__, changed)
        }


def _encoded(one: CollectedTable) -> bytes:
    from tidegate.spark_consumer.sinks.files.parquet_bytes import (  # noqa: PLC0415 - optional
        parquet_file,
    )

    return parquet_file(one.changes, one.schema)


def _path(one: AnyTable, release: int) -> str:
    return f"{PARQUET}/{one.schemas.table}/{release:012d}"
