"""Reads the consumer's output: Delta tables with delta-rs, manifests as plain JSON.

The changelog is read file by file, so that the order of rows is the order in the files and not that
of a query.  Nothing here assumes that the tables are right.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from tidegate.local_stack.judge.log import Place, record_sequence_numbers
from tidegate.local_stack.judge.values import canonical

_RELEASES = "_releases"
_CHANGELOG = "changelog"
_MIRROR = "mirror"
_LATE = "late"

TableRows = dict[str, tuple[Any, ...]]
"""Columns by name, each with its canonical values, all of one length."""


@dataclass(frozen=True, slots=True)
class ManifestTable:
    """One table at one release; the mirror may be that of an older one, or missing."""

    changelog_path: str
    changelog_version: int | None
    mirror_path: str | None
    mirror_version: int | None
    mirror_release: int | None = None


@dataclass(frozen=True, slots=True)
class ReleaseManifest:
    """A release as its manifest describes it: bounds, and each table's version."""

    number: int
    after_us: int
    through_us: int
    rows: int
    tables: Mapping[str, ManifestTable]


@dataclass(frozen=True, slots=True)
class ChangelogRow:
    """One row of a changelog, with its claimed place in commit order and its place in the files."""

    table: str
    release: int
    ordinal: int
    place: Place
    mod_type: str
    keys: Mapping[str, Any]
    new_values: Mapping[str, Any] | None
    old_values: Mapping[str, Any] | None
    new_columns: tuple[str, ...] | None
    old_columns: tuple[str, ...] | None
    tag: str
    records_in_transaction: int
    partitions_in_transaction: int
    origin: int
    """The number of the stream partition that it came from."""
    source_place: Place
    file: str
    row_in_file: int


@dataclass(frozen=True, slots=True)
class ChangelogTable:
    """A whole changelog, with the Arrow types of the source table's columns."""

    table: str
    rows: tuple[ChangelogRow, ...]
    types: Mapping[str, pa.DataType]


class CommitTimes(Protocol):
    """When each version of a changelog was committed."""

    def commit_times_ms(self, table: str) -> Mapping[int, int]:
        """Return the time of each version, in milliseconds since 1970."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A changelog row's commit times in its source and in Delta."""

    committed_us: int
    delivered_us: int
    release: int


def release_times_us(
    times: CommitTimes, manifests: Iterable[ReleaseManifest]
) -> dict[tuple[str, int], int]:
    """Return when the changelog of a table and a release was committed, where it is known."""
    commit_times: dict[str, Mapping[int, int]] = {}
    times_us: dict[tuple[str, int], int] = {}
    for manifest in manifests:
        for table, entry in manifest.tables.items():
            if table not in commit_times:
                commit_times[table] = times.commit_times_ms(table)
            at_ms = commit_times[table].get(
                -1 if entry.changelog_version is None else entry.changelog_version
            )
            if at_ms is not None:
                times_us[table, manifest.number] = at_ms * 1_000
    return times_us


@dataclass(frozen=True, slots=True)
class DeltaReader:
    """Reads everything below a consumer's output folder."""

    output: Path

    def manifests(self, *, mirror: str = _MIRROR) -> list[ReleaseManifest]:
        """Return all manifests, by release number, with the versions of a sink's mirrors."""
        folder = self.output / _RELEASES
        paths = sorted(folder.glob("*.json")) if folder.is_dir() else []
        manifests = [_manifest(json.loads(path.read_bytes()), mirror) for path in paths]
        return sorted(manifests, key=lambda manifest: manifest.number)

    def changelog_tables(self) -> list[str]:
        """Return the names of the tables that have a changelog."""
        return self._tables(_CHANGELOG)

    def mirror_tables(self) -> list[str]:
        """Return the names of the tables that have a mirror."""
        return self._tables(_MIRROR)

    def _tables(self, kind: str) -> list[str]:
        folder = self.output / kind
        if not folder.is_dir():
            return []
        return sorted(p.name for p in folder.iterdir() if (p / "_delta_log").is_dir())

    def changelog(self, table: str) -> ChangelogTable:
        """Return every row of a changelog's newest version, in the order of its files."""
        return changelog_table(table, delta_files(self.output / _CHANGELOG / table))

    def commit_times_ms(self, table: str) -> dict[int, int]:
        """Return when each version of a changelog was committed, by its own Delta log."""
        delta = DeltaTable(str(self.output / _CHANGELOG / table))
        return {int(entry["version"]): int(entry["timestamp"]) for entry in delta.history()}

    def mirror(self, table: str, *, version: int | None = None) -> TableRows:
        """Return a mirror at a version, or at its head."""
        return table_rows(read_delta(self.output / _MIRROR / table, version=version))

    def late_rows(self) -> int:
        """Return the number of rows in the side table for late changes."""
        path = self.output / _LATE
        if not (path / "_delta_log").is_dir():
            return 0
        return int(read_delta(path).num_rows)


def changelog_table(table: str, files: Iterable[tuple[str, pa.Table]]) -> ChangelogTable:
    """Return a changelog of these files, each with its name and its rows in their order."""
    rows: list[ChangelogRow] = []
    types: dict[str, pa.DataType] = {}
    for name, content in files:
        types |= {
            field.name: field.type
            for column in ("key", "new_values")
            for field in content.schema.field(column).type
        }
        rows.extend(
            _changelog_row(table, row, file=name, at=at)
            for at, row in enumerate(content.to_pylist())
        )
    return ChangelogTable(table=table, rows=tuple(rows), types=types)


def read_delta(path: Path, *, version: int | None = None) -> pa.Table:
    """Return a Delta table's rows at a version, or at its head; without any columns if it is empty.

    Raises what `delta_files` raises.
    """
    parts = [content for _, content in delta_files(path, version=version)]
    return pa.concat_tables(parts, promote_options="default") if parts else pa.table({})


def delta_files(path: Path, *, version: int | None = None) -> list[tuple[str, pa.Table]]:
    """Return each file of a Delta table at a version, or at its head, with its rows.

    They are read one by one: delta-rs's own way to Arrow leaves threads behind that abort the
    interpreter when it ends, more often than not.  Raises ValueError for a table whose rows do not
    follow from its files alone.
    """
    delta = DeltaTable(str(path), version=version)
    return [(uri, _read_file(uri)) for uri in _plain_files(delta)]


def _read_file(uri: str) -> pa.Table:
    """Return a file's rows with the types that Spark's files have.

    delta-rs's MERGE writes Arrow's view types to its files, which PyArrow joins with no other
    types.
    """
    content = pq.read_table(_local_path(uri), partitioning=None)
    fields = [field.with_type(_without_views(field.type)) for field in content.schema]
    return content.cast(pa.schema(fields))


def _without_views(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_without_views(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_views(field.type)) for field in kind])
    return kind


def _plain_files(delta: DeltaTable) -> list[str]:
    """Return a table's files by name; raises ValueError if rows or columns are kept elsewhere."""
    features = set(delta.protocol().reader_features or ())
    mapping = delta.metadata().configuration.get("delta.columnMapping.mode", "none")
    if "deletionVectors" in features or mapping != "none" or delta.metadata().partition_columns:
        raise ValueError(
            f"{delta.table_uri} has deletion vectors, mapped columns or partition columns"
        )
    return sorted(delta.file_uris())


def table_rows(table: pa.Table) -> TableRows:
    """Return an Arrow table's columns in canonical form."""
    columns: TableRows = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_timestamp(column.type):
            micros = column.cast(pa.timestamp("us", tz=column.type.tz), safe=False)
            columns[name] = tuple(micros.cast(pa.int64()).to_pylist())
        elif pa.types.is_integer(column.type) or pa.types.is_string(column.type):
            columns[name] = tuple(column.to_pylist())
        else:
            columns[name] = tuple(canonical(value) for value in column.to_pylist())
    return columns


def _manifest(content: Mapping[str, Any], sink: str) -> ReleaseManifest:
    return ReleaseManifest(
        number=int(content["release"]),
        after_us=int(content["after_us"]),
        through_us=int(content["through_us"]),
        rows=int(content["rows"]),
        tables={
            name: ManifestTable(
                changelog_path=entry["changelog"]["path"],
                changelog_version=entry["changelog"]["version"],
                mirror_path=mirror.get("path"),
                mirror_version=mirror.get("version"),
                mirror_release=mirror.get("release", int(content["release"])) if mirror else None,
            )
            for name, entry in content["tables"].items()
            for mirror in [entry.get(sink, {})]
        },
    )


def _local_path(uri: str) -> str:
    parsed = urlparse(uri)
    return unquote(parsed.path) if parsed.scheme == "file" else uri


def _changelog_row(table: str, row: Mapping[str, Any], *, file: str, at: int) -> ChangelogRow:
    source = row["source"]
    return ChangelogRow(
        table=table,
        release=row["release"],
        ordinal=row["ordinal"],
        place=_place(row),
        mod_type=row["mod_type"],
        keys=_struct(row["key"]) or {},
        new_values=_struct(row["new_values"]),
        old_values=_struct(row["old_values"]),
        new_columns=_names(row["new_columns"]),
        old_columns=_names(row["old_columns"]),
        tag=source["transaction_tag"],
        records_in_transaction=source["number_of_records_in_transaction"],
        partitions_in_transaction=source["number_of_partitions_in_transaction"],
        origin=row["origin"],
        source_place=_place(source),
        file=file,
        row_in_file=at,
    )


def _place(row: Mapping[str, Any]) -> Place:
    return Place(
        commit_timestamp_us=canonical(row["commit_timestamp"]),
        server_transaction_id=row["server_transaction_id"],
        record_sequence=record_sequence_numbers(row["record_sequence"]),
        mod_number=row["mod_number"],
    )


def _struct(value: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if value is None else {name: canonical(item) for name, item in value.items()}


def _names(value: list[str] | None) -> tuple[str, ...] | None:
    return None if value is None else tuple(value)
