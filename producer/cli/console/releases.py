"""The releases of an output, read from its manifests: `docs/reference/output.md` describes them."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.producer.datastream.file_store import FileStore, PathMissing, open_location
from tidegate.schemas.errors import ConfigError, SchemaError

_FOLDER = "_releases"
KEPT = 500
"""Number of releases that are kept in memory."""


@dataclass(frozen=True, slots=True)
class Release:
    """One release."""

    number: int
    after_us: int
    through_us: int
    """It has the changes with `after_us` < commit time <= `through_us`."""
    rows: int
    tables: Mapping[str, Mapping[str, Mapping[str, Any]]]
    """By table and sink, as the manifest has them."""
    published_us: int
    """When its manifest was last written."""

    @property
    def lag_s(self) -> float:
        """Seconds from its newest possible commit time to its publication."""
        return max(self.published_us - self.through_us, 0) / 1_000_000


class ReleaseReader:
    """The newest releases of an output; one thread refreshes, any may read `releases`."""

    def __init__(self, output: str) -> None:
        """Open nothing yet.  Raises ConfigError for an address that cannot be read."""
        self._store, folder = opened(output, setting="output")
        self._folder = f"{folder.rstrip('/')}/{_FOLDER}"
        self.releases: tuple[Release, ...] = ()
        """The newest ones, the oldest first."""

    def refresh(self) -> None:
        """Read the releases since the last call; all of them if the output has begun again.

        While the output has no release, each call looks for the first one.  Raises ConfigError,
        SchemaError for an invalid manifest, and UnreachableError.
        """
        if self.releases and self.read(self.releases[-1].number) != self.releases[-1]:
            self.releases = ()  # of a former output, or a release that was written again
        newest = self.releases[-1].number if self.releases else self._newest()
        if newest is None:
            return
        kept = deque(self.releases, maxlen=KEPT)
        number = newest + 1 if self.releases else max(newest - KEPT + 1, 0)
        while True:
            release = self.read(number)
            if release is not None:
                kept.append(release)
            elif number > newest:
                break
            number += 1
        self.releases = tuple(kept)

    def containing(self, commit_us: int) -> Release | None:
        """Return the release that has the changes of a commit time; None if none has them yet.

        One that is not held in memory is searched for in the output: some twenty small reads.
        """
        held = self.releases
        if not held or commit_us > held[-1].through_us:
            return None
        for release in reversed(held):
            if release.after_us < commit_us <= release.through_us:
                return release
        low, high = 0, held[0].number
        while low < high:
            middle = (low + high) // 2
            older = self.read(middle)
            if older is not None and commit_us <= older.through_us:
                high = middle
            else:
                low = middle + 1
        oldest = self.read(low)
        return oldest if oldest is not None and oldest.after_us < commit_us else None

    def read(self, number: int) -> Release | None:
        """Return one release; None if it has no manifest."""
        path = f"{self._folder}/{number:012d}.json"
        content = self._json(path)
        if content is None:
            return None
        try:
            return Release(
                number=content["release"],
                after_us=content["after_us"],
                through_us=content["through_us"],
                rows=content["rows"],
                tables=content["tables"],
                published_us=self._store.written_us(path),
            )
        except PathMissing:
            return None
        except (KeyError, TypeError) as error:
            raise SchemaError(
                "invalid release manifest", hint="Restore the output's _releases folder", file=path
            ) from error

    def _newest(self) -> int | None:
        try:
            entries = self._store.entries(self._folder)
        except PathMissing:
            return None
        names = (entry.name.removesuffix(".json") for entry in entries)
        return max((int(name) for name in names if name.isdecimal()), default=None)

    def _json(self, path: str) -> dict[str, Any] | None:
        return read_json(self._store, path)


@dataclass(frozen=True, slots=True)
class Audit:
    """The result that `tidegate-consumer audit --json` has printed."""

    at_us: int
    """When its file was written."""
    is_proved: bool
    release: int
    changes: int
    mismatches: int


class AuditFile:
    """A file of the last audit's result."""

    def __init__(self, address: str) -> None:
        """Open nothing yet.  Raises ConfigError for an address that cannot be read."""
        self._store, self._path = opened(address, setting="audit")

    def read(self) -> Audit | None:
        """Return the result; None without a file.  Raises as `ReleaseReader.refresh`."""
        content = read_json(self._store, self._path)
        if content is None:
            return None
        try:
            return Audit(
                at_us=self._store.written_us(self._path),
                is_proved=content["proved"],
                release=content["release"],
                changes=content["changes"],
                mismatches=len(content["mismatches"]) + content["mismatches_not_listed"],
            )
        except (KeyError, TypeError) as error:
            raise SchemaError(
                "the file is not the result of an audit",
                hint="Write it with `tidegate-consumer audit --json`",
                file=self._path,
            ) from error


def read_json(store: FileStore, path: str) -> dict[str, Any] | None:
    """Return the content of a JSON file; None if it does not exist.

    Raises SchemaError for any other file, ConfigError and UnreachableError as the store does.
    """
    try:
        with store.open(path) as file:
            content = json.loads(file.read())
    except PathMissing:
        return None
    except ValueError as error:
        raise SchemaError("the file is not JSON", hint="Check the address", file=path) from error
    if not isinstance(content, dict):
        raise SchemaError("the file holds no JSON object", hint="Check the address", file=path)
    return content


def opened(address: str, *, setting: str) -> tuple[FileStore, str]:
    """Return the store of an address and the path in it; raises ConfigError for another store."""
    address = address.replace("s3a://", "s3://", 1)
    scheme, separator, _ = address.partition("://")
    if separator and scheme not in ("file", "gs", "s3"):
        raise ConfigError(
            f"{setting}: {scheme}:// is not supported by the console",
            hint="Give a path, gs://BUCKET/PATH or s3://BUCKET/PATH, or leave it out",
        )
    return open_location(address, setting=setting)
