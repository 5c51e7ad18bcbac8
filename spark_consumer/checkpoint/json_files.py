"""Small JSON files in one folder: the port that the checkpoint and the manifests are written to.

`Storage` implements it over Hadoop's FileSystem; `LocalFolder` reads a folder without Spark.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from tidegate.spark_consumer.errors import CheckpointMismatch

_NO_FILE = (
    FileNotFoundError,
    IsADirectoryError,
    NotADirectoryError,
    ValueError,  # no file can have the name, such as one with a null byte
)


def decoded(data: bytes, *, file: str) -> Any:
    """Return the content of a file; raises CheckpointMismatch if it is not JSON."""
    try:
        return json.loads(data)
    except ValueError as error:
        raise not_as_written(file, error) from error


def not_as_written(file: str, cause: Exception) -> CheckpointMismatch:
    """Return the error for a file that was damaged or changed."""
    message = "a file does not hold what Tidegate writes to it"
    hint = "Restore checkpoint and output of one moment, or adopt the output into a new checkpoint"
    return CheckpointMismatch(message, hint=hint, file=file, cause=repr(cause))


class JsonFiles(Protocol):
    """A folder to read; names are paths relative to it."""

    def read_json(self, name: str) -> dict[str, Any] | None:
        """Return a file's content, or None if there is no such file."""
        ...

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder, sorted; empty if the folder does not exist.

        On an object store the list may lack the newest files.
        """
        ...


class JsonStorage(JsonFiles, Protocol):
    """A folder with one writer; a run that was replaced gets WriterReplaced from every method.

    The check precedes the write, so a run that is replaced between the two still writes: callers
    must be safe then.  Only `create_json` and `create` decide between two runs.
    """

    @property
    def root(self) -> str:
        """The folder's address."""
        ...

    def write_json(self, name: str, content: object) -> None:
        """Write or replace a file; readers see the former content or the new one, whole."""
        ...

    def create_json(self, name: str, content: object) -> bool:
        """Write a file if it does not exist; return whether this call wrote it.

        Of any number of simultaneous calls exactly one returns True.
        """
        ...

    def create(self, name: str, content: object) -> bool:
        """Do as `create_json`, also for a run that is not the writer."""
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Delete files, and folders with their content; missing ones are not an error."""
        ...

    def require_writer(self) -> None:
        """Raise WriterReplaced if a younger run is the folder's writer."""
        ...


def local_path(address: str) -> Path | None:
    """Return the path of a folder on this machine, from a path or an address of the scheme `file`.

    None for any other address.
    """
    path = address.removeprefix("file://").removeprefix("file:")
    return None if "://" in path else Path(path)


class LocalFolder:
    """A folder on this machine."""

    def __init__(self, folder: Path) -> None:
        """Take the folder; it may be missing."""
        self._folder = folder

    @property
    def root(self) -> str:
        """The folder's path."""
        return str(self._folder)

    def read_json(self, name: str) -> dict[str, Any] | None:
        """Return a file's content, or None; raises OSError if it cannot be read."""
        try:  # not asked for before: its writer may delete it at any moment
            data = (self._folder / name).read_bytes()
        except _NO_FILE:
            return None
        content: dict[str, Any] = decoded(data, file=name)
        return content

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder, without temporary ones."""
        path = self._folder / folder
        return sorted(file.name for file in path.glob("[!._]*")) if path.is_dir() else []

    def written_ms(self, name: str) -> int | None:
        """Return when a file was written last, in milliseconds since 1970; None without it."""
        try:
            return (self._folder / name).stat().st_mtime_ns // 1_000_000
        except _NO_FILE:
            return None
