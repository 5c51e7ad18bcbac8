"""Reads Iceberg tables of a Hadoop catalog from their files, as the table format describes them.

Uses neither Spark nor Iceberg's library, so that none of their mistakes, or of ours in using them,
is read back as right.  Nothing here assumes that the tables are right.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from tidegate.local_stack.judge.delta import ChangelogTable, TableRows, changelog_table, table_rows

_DELETED = 2
"""The status of a file that a snapshot no longer has."""


@dataclass(frozen=True, slots=True)
class IcebergReader:
    """Reads the warehouse of a consumer's Iceberg sinks."""

    warehouse: Path

    def changelogs(self) -> list[ChangelogTable]:
        """Return the changelogs as readers see them."""
        folders = iceberg_folders(self.warehouse, "changelog")
        return [changelog_table(table, read_iceberg(folder)) for table, folder in folders.items()]

    def mirror_tables(self) -> list[str]:
        """Return the names of the tables that have a mirror."""
        return sorted(iceberg_folders(self.warehouse, "mirror"))

    def mirror(self, table: str, *, version: int | None = None) -> TableRows:
        """Return a mirror at a snapshot, or as readers see it."""
        folder = iceberg_folders(self.warehouse, "mirror")[table]
        parts = [content for _, content in read_iceberg(folder, snapshot=version)]
        return table_rows(pa.concat_tables(parts, promote_options="default")) if parts else {}


def iceberg_folders(warehouse: Path, kind: str) -> dict[str, Path]:
    """Return the folders of all tables in namespaces `<anything>_<kind>`, by table."""
    found = sorted(warehouse.glob(f"*_{kind}/*/metadata"))
    return {metadata.parent.name: metadata.parent for metadata in found}


def read_iceberg(folder: Path, *, snapshot: int | None = None) -> list[tuple[str, pa.Table]]:
    """Return each file of a snapshot with its rows; without one, of the snapshot that readers see.

    A table without a snapshot has no file.  Raises ValueError for a snapshot that the table does
    not have, and for one whose rows are not those of its data files.
    """
    metadata = _newest_metadata(folder)
    wanted = metadata.get("current-snapshot-id", -1) if snapshot is None else snapshot
    snapshots = {one["snapshot-id"]: one for one in metadata["snapshots"]}
    if snapshot is None and wanted in {None, -1}:
        return []
    if wanted not in snapshots:
        raise ValueError(f"{folder} has no snapshot {wanted}")
    paths = _data_files(snapshots[wanted]["manifest-list"])
    return [(str(path), pq.read_table(path, partitioning=None)) for path in paths]


def _newest_metadata(folder: Path) -> dict[str, Any]:
    """Return the newest metadata: a killed writer may leave the hint at the one before."""
    versions = {
        int(path.name[1:].partition(".")[0]): path
        for path in (folder / "metadata").glob("v*.metadata.json")
    }
    found: dict[str, Any] = json.loads(versions[max(versions)].read_bytes())
    return found


def _data_files(manifest_list: str) -> Iterator[Path]:
    for manifest in _records(manifest_list):
        if manifest["content"]:
            raise ValueError(
                f"{manifest['manifest_path']} deletes rows of files, which are not read"
            )
        for entry in _records(manifest["manifest_path"]):
            if entry["status"] != _DELETED:
                yield _local(entry["data_file"]["file_path"])


def _records(location: str) -> list[Any]:
    with _local(location).open("rb") as file:
        return list(fastavro.reader(file))


def _local(location: str) -> Path:
    return Path(urlparse(location).path)
