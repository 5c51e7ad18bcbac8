"""Where Datastream's files are: a local folder, or a bucket through fsspec.

The one place that opens files and lists folders.  `gs://` and `s3://` need the extra `gcs` or `s3`;
a local folder needs none.  No exception of a library leaves it: a location that does not exist or
that the principal may not read is a ConfigError, a service that does not answer an
UnreachableError.
"""

from __future__ import annotations

import io
import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn, Protocol, cast

from tidegate.program.extras import Extra
from tidegate.schemas.errors import ConfigError, UnreachableError
from tidegate.schemas.instants import parse_rfc3339_ns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Buffer

__all__ = [
    "Entry",
    "FileStore",
    "FsspecStore",
    "LocalStore",
    "PathMissing",
    "StoredFile",
    "open_location",
]

_BUFFER_BYTES = 1 << 20
_FLAG = "--datastream"
"""Of `discover`: what errors name, unless another setting is given."""
_EXTRAS = {
    "gs": Extra("gcs", ("fsspec", "gcsfs")),
    "s3": Extra("s3", ("fsspec", "s3fs")),
}
_MODIFIED = ("updated", "mtime", "LastModified", "last_modified", "created")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NS_PER_US = 1_000
_LOGINS = ("NoCredentialsError", "DefaultCredentialsError", "RefreshError", "PartialCredentials")
_LOGIN_HINTS = {
    "gs": "Give it credentials (GOOGLE_APPLICATION_CREDENTIALS, or the host's own account)",
    "s3": "Give it credentials (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile)",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or folder."""

    name: str
    path: str
    """What the store opens it by."""
    is_folder: bool


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file, and when it was written."""

    path: str
    modified_us: int
    """Since 1970, by the clock of the store."""


class PathMissing(ConfigError):  # noqa: N818 - named for what was found
    """A file or folder does not exist."""


class FileStore(Protocol):
    """Files in folders."""

    def entries(self, folder: str) -> list[Entry]:
        """Return what a folder holds, by name; a file is a folder that holds itself.

        Raises ConfigError and UnreachableError.
        """
        ...

    def files_below(self, folder: str) -> list[StoredFile]:
        """Return the files of a folder and all folders in it; none if there is no such folder.

        Raises ConfigError and UnreachableError.
        """
        ...

    def open(self, path: str) -> BinaryIO:
        """Open a file to read it from its start; it can seek.

        Opening and reading raise ConfigError and UnreachableError.
        """
        ...


class LocalStore:
    """Files of this machine; `setting` is what errors name."""

    def __init__(self, *, setting: str = _FLAG) -> None:
        self._setting = setting

    def entries(self, folder: str) -> list[Entry]:
        """Return what a folder holds, by name; a file is a folder that holds itself."""
        place = Path(folder)
        try:
            if place.is_file():
                return [Entry(place.name, folder, is_folder=False)]
            with os.scandir(place) as found:
                entries = [Entry(one.name, one.path, is_folder=one.is_dir()) for one in found]
        except (OSError, ValueError) as error:
            _refuse(error, folder, scheme="", setting=self._setting)
        return sorted(entries, key=lambda one: one.name)

    def files_below(self, folder: str) -> list[StoredFile]:
        """Return the files of a folder and all folders in it; none if there is no such folder."""
        found = []
        try:
            for place, _, names in os.walk(folder, onerror=_raise):
                for name in names:
                    path = f"{place}/{name}"
                    with suppress(FileNotFoundError):  # removed since it was listed
                        found.append(StoredFile(path, os.stat(path).st_mtime_ns // _NS_PER_US))  # noqa: PTH116
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            _refuse(error, folder, scheme="", setting=self._setting)
        return found

    def open(self, path: str) -> BinaryIO:
        """Open a file to read it from its start."""
        try:
            raw = Path(path).open("rb", buffering=0)  # noqa: SIM115 - the caller closes it
        except (OSError, ValueError) as error:
            _refuse(error, path, scheme="", setting=self._setting)
        return _buffered(raw, path, scheme="", setting=self._setting)


class FsspecStore:
    """Files of a bucket, or of any other file system of fsspec's."""

    def __init__(self, file_system: Any, *, scheme: str, setting: str = _FLAG) -> None:
        self._files = file_system
        self._scheme = scheme
        self._setting = setting

    def entries(self, folder: str) -> list[Entry]:
        """Return what a folder holds, by name; a file is a folder that holds itself."""
        try:
            found = self._files.ls(folder, detail=True)
        except Exception as error:  # noqa: BLE001 - each library has its own
            _refuse(error, self._url(folder), scheme=self._scheme, setting=self._setting)
        entries = []
        for one in found:
            path = one["name"].rstrip("/")
            # Buckets hold empty objects that stand for folders, such as the listed one.
            if path == folder.rstrip("/") and one["type"] == "directory":
                continue
            if one["name"].endswith("/") and one["type"] != "directory":
                continue
            name = path.rpartition("/")[2]
            entries.append(Entry(name, path, is_folder=one["type"] == "directory"))
        return sorted(entries, key=lambda one: one.name)

    def files_below(self, folder: str) -> list[StoredFile]:
        """Return the files of a folder and all folders in it; none if there is no such folder."""
        try:
            # Another program writes the files: what fsspec remembers of a folder is old.
            self._files.invalidate_cache()
            found = self._files.find(folder, detail=True)
        except FileNotFoundError:
            return []
        except Exception as error:  # noqa: BLE001 - each library has its own
            _refuse(error, self._url(folder), scheme=self._scheme, setting=self._setting)
        return [
            StoredFile(path, _modified_us(one, self._url(path)))
            for path, one in found.items()
            if not path.endswith("/")
        ]

    def open(self, path: str) -> BinaryIO:
        """Open a file to read it from its start."""
        try:
            raw = self._files.open(path, "rb")
        except Exception as error:  # noqa: BLE001 - each library has its own
            _refuse(error, self._url(path), scheme=self._scheme, setting=self._setting)
        return _buffered(raw, self._url(path), scheme=self._scheme, setting=self._setting)

    def _url(self, path: str) -> str:
        return f"{self._scheme}://{path.lstrip('/')}"


class _Reading(io.RawIOBase):
    """A library's file whose errors are those of this project."""

    def __init__(self, raw: Any, path: str, *, scheme: str, setting: str) -> None:
        super().__init__()
        self._setting = setting
        self._raw = raw
        self._path = path
        self._scheme = scheme

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        view = memoryview(buffer)
        try:
            found = self._raw.read(len(view))
        except Exception as error:  # noqa: BLE001 - each library has its own
            _refuse(error, self._path, scheme=self._scheme, setting=self._setting)
        view[: len(found)] = found
        return len(found)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._raw.seek(offset, whence))

    def tell(self) -> int:
        return int(self._raw.tell())

    def close(self) -> None:
        self._raw.close()
        super().close()


def open_location(location: str, *, setting: str = _FLAG) -> tuple[FileStore, str]:
    """Return the store of a location, and the folder in it; `setting` is named in errors.

    Raises ConfigError for a scheme that is not supported, and for one whose extra is not installed.
    """
    scheme, separator, path = location.partition("://")
    if not separator:
        return LocalStore(setting=setting), os.path.expanduser(location)  # noqa: PTH111 - raises for no user
    if scheme == "file":
        return LocalStore(setting=setting), path
    extra = _EXTRAS.get(scheme)
    if extra is None:
        message = f"{setting}: {scheme}:// is not supported"
        raise ConfigError(message, hint="Give a local folder, gs://BUCKET/PATH or s3://BUCKET/PATH")
    if not path.strip("/"):
        message = f"{setting}: {location} names no bucket"
        raise ConfigError(message, hint=f"Give {scheme}://BUCKET/PATH")
    extra.require()
    folder = path.strip("/")
    try:
        files = import_module("fsspec").filesystem(scheme)
    except Exception as error:  # noqa: BLE001 - each library has its own
        _refuse(error, location, scheme=scheme, setting=setting)
    return FsspecStore(files, scheme=scheme, setting=setting), folder


def _raise(error: OSError) -> NoReturn:
    raise error


def _modified_us(entry: Mapping[str, Any], url: str) -> int:
    """Return when a file of fsspec's was written; libraries have several names and types for it."""
    for name in _MODIFIED:
        match entry.get(name):
            case datetime() as at:
                at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
                return (at - _EPOCH) // _MICROSECOND
            case str() as text:
                return parse_rfc3339_ns(text) // _NS_PER_US
            case int() | float() as seconds:
                return int(seconds * 1_000_000)
            case _:
                continue
    message = f"{url}: the store does not say when it was written"
    raise ConfigError(message, hint="Late files are recognised by it: use gs://, s3:// or a folder")


def _buffered(raw: Any, path: str, *, scheme: str, setting: str) -> BinaryIO:
    reading = _Reading(raw, path, scheme=scheme, setting=setting)
    return cast("BinaryIO", io.BufferedReader(reading, _BUFFER_BYTES))


def _refuse(error: Exception, path: str, *, scheme: str, setting: str) -> NoReturn:
    """Raise the error of this project for one of a library's."""
    kind = type(error).__name__
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        message = f"{setting}: {path} does not exist"
        raise PathMissing(message, hint="Check the location") from error
    if isinstance(error, ValueError) and not scheme:
        # A NUL, or a character that no file name can have; printed as its escape.
        message = f"{setting}: {path!r} is not a path"
        raise ConfigError(message, hint="Check the location") from error
    if isinstance(error, PermissionError):
        message = f"{setting}: {path} may not be read"
        raise ConfigError(message, hint="Grant this principal read access to it") from error
    if any(kind.startswith(one) for one in _LOGINS):
        message = f"{setting}: no credentials for {path} ({kind})"
        raise ConfigError(message, hint=_LOGIN_HINTS.get(scheme, "")) from error
    message = f"{path} cannot be read: {kind}: {error}"
    raise UnreachableError(message, hint="Run it again once it answers") from error
