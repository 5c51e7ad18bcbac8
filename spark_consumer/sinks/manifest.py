"""The manifest: one file per release, from which a reader finds a consistent cut over all tables.

It is written after all sinks, so a release with a manifest is complete in every table it names.  It
holds each table's version after the release, and paths relative to the output.  Mirrors may be at
an older release, which it names; it is the same in every table.  Invariant: numbers and
`through_us` grow together, so the newest release at a time is found by bisection.

Old manifests are dropped.  A second file holds the first release whose manifest is kept; it is
written before any manifest is deleted, so if a reader finds it unchanged after a search, no
manifest was missing during the search.  A third file names the versions of tables that may lack
files, since a run has deleted the files that only they need.  It is written before these files are
deleted, so a reader that finds a version in it stops there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from tidegate.schemas.errors import SchemaError
from tidegate.schemas.progress import PartitionGap
from tidegate.spark_consumer.checkpoint.json_files import JsonFiles
from tidegate.spark_consumer.checkpoint.writers import last_number
from tidegate.spark_consumer.core.sink_names import MIRRORS
from tidegate.spark_consumer.core.transition import DROPPED_AT_ONCE
from tidegate.spark_consumer.sinks.port import TableVersion

_HINT = "Restore the output's _releases folder"

MANIFEST_FOLDER = "_releases"
_FIRST = f"{MANIFEST_FOLDER}/_first"
"""`first` is the oldest release with a manifest, `before` its former value.

Manifests between the two are being deleted.  A listing leaves this file out by its name.
"""

_VACUUMED = "_releases/_vacuumed"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ManifestWriter(Protocol):
    """Where manifests are written."""

    def write_json(self, name: str, content: object) -> None:
        """Write or replace a file, whole or not at all."""
        ...

    def read_json(self, name: str) -> dict[str, Any] | None:
        """Return a file's content, or None if there is no such file."""
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Delete files; missing ones are not an error."""
        ...


class OutputFiles(ManifestWriter, Protocol):
    """The methods of the output that sinks of files need."""

    def path(self, name: str) -> str:
        """Return the whole path of a name, for Spark's writers."""
        ...

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder, sorted; empty if it does not exist."""
        ...

    def read(self, name: str) -> bytes | None:
        """Return a file's bytes, or None if there is no such file."""
        ...

    def written_ms(self, name: str) -> int | None:
        """Return when a file was written last; None without it."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """Write or replace a file, whole or not at all."""
        ...

    def move_folder(self, name: str, to: str) -> None:
        """Give a folder another name, in place of a folder that has it."""
        ...

    def create_json(self, name: str, content: object) -> bool:
        """Write a file if it does not exist; return whether this call wrote it."""
        ...


@dataclass(frozen=True, slots=True)
class Manifest:
    """A release as its sinks wrote it; `tables` is by table and then by sink."""

    release: int
    query_id: str
    batch: int
    after_us: int
    through_us: int
    rows: int
    tables: Mapping[str, Mapping[str, TableVersion]]
    copies: int = 0
    """Records that were left out because they repeat a change of the release."""
    complete_from_us: int | None = None
    """Changes up to this commit time may be missing: Kafka had removed some before the query began.

    None: the output is complete from the first change of the stream on.
    """
    mismatches: int = 0
    """Transactions of the release that have not as many records as they state, and topics of stream
    partitions that contradict the markers which it passes."""
    first_mismatches: tuple[Mapping[str, Any], ...] = ()
    """The first mismatches, in the form of an audit."""
    gaps: tuple[PartitionGap, ...] = ()
    """The accepted gaps up to this release, which this output lacks permanently.

    Changes of these stream partitions in these times expired before they were read.
    """

    @property
    def mirror_release(self) -> int | None:
        """The release of the mirrors; None without a mirror.

        Raises SchemaError if they are at different releases.
        """
        releases = {
            self.release if version.release is None else version.release
            for sinks in self.tables.values()
            for sink, version in sinks.items()
            if sink in MIRRORS
        }
        if len(releases) > 1:
            message = "a manifest names mirrors of different releases"
            mirrors = sorted(map(str, releases))
            raise SchemaError(message, hint=_HINT, release=self.release, mirrors=mirrors)
        return next(iter(releases), None)

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Manifest:
        """Read a manifest's JSON; raises SchemaError for anything else."""
        try:
            tables = {
                table: {sink: _table_version(version) for sink, version in sinks.items()}
                for table, sinks in content["tables"].items()
            }
            listed = tuple(content.get("first_mismatches", ()))
            gaps = tuple(PartitionGap(**gap) for gap in content.get("gaps", ()))
            return cls(**{**content, "tables": tables, "first_mismatches": listed, "gaps": gaps})
        except (AttributeError, KeyError, TypeError) as error:
            message = "invalid release manifest"
            fields = {"release": content.get("release"), "cause": str(error)}
            raise SchemaError(message, hint=_HINT, **fields) from error

    def versions(self, sink: str) -> dict[str, int]:
        """Return the version of each table of a sink."""
        versions = ((table, sinks.get(sink)) for table, sinks in self.tables.items())
        return {table: version.version for table, version in versions if version is not None}

    def content(self) -> dict[str, Any]:
        """Return the JSON content that `of` reads, without zeros and unknown numbers of rows."""
        copies = {"copies": self.copies} if self.copies else {}
        begin_us = self.complete_from_us
        mismatches: dict[str, Any] = {}
        if self.mismatches:
            listed = [dict(mismatch) for mismatch in self.first_mismatches]
            mismatches = {"mismatches": self.mismatches, "first_mismatches": listed}
        return {
            **copies,
            **mismatches,
            **({"gaps": [asdict(gap) for gap in self.gaps]} if self.gaps else {}),
            **({} if begin_us is None else {"complete_from_us": begin_us}),
            "release": self.release,
            "query_id": self.query_id,
            "batch": self.batch,
            "after_us": self.after_us,
            "through_us": self.through_us,
            "rows": self.rows,
            "tables": {
                table: {sink: _version_content(version) for sink, version in sinks.items()}
                for table, sinks in self.tables.items()
            },
        }


def write_manifest(files: ManifestWriter, manifest: Manifest) -> None:
    """Publish a release; writing it again replaces it by an equal one."""
    files.write_json(manifest_name(manifest.release), manifest.content())


def read_manifest(files: JsonFiles | ManifestWriter, release: int) -> Manifest | None:
    """Return a release's manifest, or None if it was not published."""
    content = files.read_json(manifest_name(release))
    return None if content is None else Manifest.of(content)


def drop_manifests(files: ManifestWriter, *, before: int) -> None:
    """Delete the manifests of the oldest releases, up to a limit; the rest comes with the next.

    Repeated after a kill, it deletes the remaining manifests.
    """
    content = files.read_json(_FIRST) or {"first": 0, "before": 0}
    first = min(before, content["first"] + DROPPED_AT_ONCE)
    if first > content["first"]:
        content = {"first": first, "before": content["first"]}
        files.write_json(_FIRST, content)
    files.delete(manifest_name(release) for release in range(content["before"], content["first"]))


def first_manifest(files: JsonFiles) -> int:
    """Return the release from which on manifests are kept, 0 if none was dropped."""
    first: int = (files.read_json(_FIRST) or {}).get("first", 0)
    return first


def newest_manifest(files: JsonFiles, *, watermark_us: int) -> Manifest | None:
    """Return the newest kept release whose `through_us` is at most `watermark_us`, or None.

    A hundred thousand releases cost some thirty small reads.  They are listed only where another
    program has deleted some.
    """
    while True:
        first = first_manifest(files)
        manifest = _search(files, first, watermark_us=watermark_us)
        if first_manifest(files) == first:
            return manifest


def _search(files: JsonFiles, first: int, *, watermark_us: int) -> Manifest | None:
    def is_due(release: int) -> bool:
        manifest = read_manifest(files, release)
        return manifest is not None and manifest.through_us <= watermark_us

    if read_manifest(files, first) is not None:
        newest = last_number(first, is_due)
        return read_manifest(files, newest) if newest >= first else None
    numbers = sorted(
        int(name.removesuffix(".json"))
        for name in files.names(MANIFEST_FOLDER)
        if name.endswith(".json") and name.removesuffix(".json").isdecimal()
    )
    due = bisect_left(numbers, True, key=lambda release: not is_due(release))  # noqa: FBT003 - the value that is searched
    return read_manifest(files, numbers[due - 1]) if due else None


def manifest_name(release: int) -> str:
    """Return the name of a release's manifest in the output."""
    return f"{MANIFEST_FOLDER}/{release:012d}.json"


def _version_content(version: TableVersion) -> dict[str, Any]:
    content: dict[str, Any] = {"path": version.path, "version": version.version}
    if version.rows is not None:
        content["rows"] = version.rows
    if version.left_out:
        content["left_out"] = list(version.left_out)
    if version.release is not None:
        content["release"] = version.release
    return content


def _table_version(content: Mapping[str, Any]) -> TableVersion:
    return TableVersion(**{**content, "left_out": tuple(content.get("left_out", ()))})


@dataclass(frozen=True, slots=True)
class KeptVersions:
    """The versions of a table that can be read."""

    first: int
    """This version and all later ones are whole."""
    same_since: int
    """All versions from here to `first` have the same rows: their files were only rewritten."""

    def readable(self, version: int) -> int | None:
        """Return a whole version with the rows of this one; None if there is none."""
        if version >= self.first:
            return version
        return self.first if version >= self.same_since else None


class VacuumedVersions:
    """The file as its writer sees it."""

    def __init__(self, files: ManifestWriter) -> None:
        """Read nothing yet; the file has one writer, so it is read once."""
        self._files = files
        self._known: dict[str, Any] | None = None

    def last_round(self) -> datetime | None:
        """Return when the last round over all tables began; None before the first."""
        at_us = self._content().get("at_us")
        return None if at_us is None else _EPOCH + timedelta(microseconds=at_us)

    def note_round(self, now: datetime) -> None:
        """Note that a round begins."""
        at_us = (now - _EPOCH) // timedelta(microseconds=1)
        self._write({**self._content(), "at_us": at_us})

    def note_table(self, path: str, kept: KeptVersions) -> None:
        """Store the first versions that stay whole; a table's version never decreases."""
        content = self._content()
        tables = dict(content.get("tables", {}))
        before = tables.get(path)
        if before is None or before[0] < kept.first:
            tables[path] = [kept.first, kept.same_since]
        self._write({**content, "tables": tables})

    def _content(self) -> dict[str, Any]:
        if self._known is None:
            self._known = self._files.read_json(_VACUUMED) or {}
        return self._known

    def _write(self, content: dict[str, Any]) -> None:
        self._files.write_json(_VACUUMED, content)
        self._known = content


def kept_versions(files: JsonFiles) -> dict[str, KeptVersions]:
    """Return what can be read of each table, by its path; only of vacuumed tables."""
    tables = (files.read_json(_VACUUMED) or {}).get("tables", {})
    return {path: KeptVersions(*kept) for path, kept in tables.items()}
