"""Where Datastream's files are: a local folder, or a bucket through fsspec.

The one place that opens files and lists folders.  `gs://` and `s3://` need the extra `gcs` or `s3`;
a local folder needs none.  No exception of a library leaves it: a location that does not exist or
that the principal may not read is a ConfigError, a service that does not answer an
UnreachableError.
"""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn, Protocol, cast

from tidegate.program.extras import Extra
from tidegate.schemas.errors import ConfigError, UnreachableError

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Entry", "FileStore", "FsspecStore", "LocalStore", "open_location"]

_BUFFER_BYTES = 1 << 20
_EXTRAS = {
    "gs": Extra("gcs", ("fsspec", "gcsfs")),
    "s3": Extra("s3", ("fsspec", "s3fs")),
}
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


class FileStore(Protocol):
    """Files in folders."""

    def entries(self, folder: str) -> list[Entry]:
        """Return what a folder holds, by name; a file is a folder that holds itself.

        Raises ConfigError and UnreachableError.
        """
        ...

    def open(self, path: str) -> BinaryIO:
        """Open a file to read it from its start; it can seek.

        Opening and reading raise ConfigError and UnreachableError.
        """
        ...


class LocalStore:
    """Files of this machine."""

    def entries(self, folder: str) -> list[Entry]:
        """Return what a folder holds, by name; a file is a folder that holds itself."""
        place = Path(folder)
        try:
            if place.is_file():
                return [Entry(place.name, folder, is_folder=False)]
            with os.scandir(place) as found:
                entries = [Entry(one.name, one.path, is_folder=one.is_dir()) for one in found]
        except (OSError, ValueError) as error:
            _refuse(error, folder, scheme="")
        return sorted(entries, key=lambda one: one.name)

    def open(self, path: str) -> BinaryIO:
        """Open a file to read it from its start."""
        try:
            raw = Path(path).open("rb", buffering=0)  # noqa: SIM115 - the caller closes it
        except (OSError, ValueError) as error:
            _refuse(error, path, scheme="")
        return _buffered(raw, path, scheme="")


class FsspecStore:
    """Files of a bucket, or of any other file system of fsspec's."""

    def __init__(self, file_system: Any, *, scheme: str) -> None:
        self._files = file_system
        self._scheme = scheme

    def entries(self, folder: str) -> list[Entry]:
        """Return what a folder holds, by name; a file is a folder that holds itself."""
        try:
            found = self._files.ls(folder, detail=True)
        except Exception as error:  # noqa: BLE001 - each library has its own
            _refuse(error, self._url(folder), scheme=self._scheme)
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

    def open(self, path: str) -> BinaryIO:
        """Open a file to read it from its start."""
        try:
            raw = self._files.open(path, "rb")
        except Exception as error:  # noqa: BLE001 - each library has its own
            _refuse(error, self._url(path), scheme=self._scheme)
        return _buffered(raw, self._url(path), scheme=self._scheme)

    def _url(self, path: str) -> str:
        return f"{self._scheme}://{path.lstrip('/')}"


class _Reading(io.RawIOBase):
    """A library's file whose errors are those of this project."""

    def __init__(self, raw: Any, path: str, scheme: str) -> None:
        super().__init__()
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
            _refuse(error, self._path, scheme=self._scheme)
        view[: len(found)] = found
        return len(found)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._raw.seek(offset, whence))

    def tell(self) -> int:
        return int(self._raw.tell())

    def close(self) -> None:
        self._raw.close()
        super().close()


def open_location(location: str) -> tuple[FileStore, str]:
    """Return the store of a location, and the folder in it.

    Raises ConfigError for a scheme that is not supported, and for one whose extra is not installed.
    """
    scheme, separator, path = location.partition("://")
    if not separator:
        return LocalStore(), os.path.expanduser(location)  # noqa: PTH111 - raises for no user
    if scheme == "file":
        return LocalStore(), path
    extra = _EXTRAS.get(scheme)
    if extra is None:
        message = f"--datastream: {scheme}:// is not supported"
        raise ConfigError(message, hint="Give a local folder, gs://BUCKET/PATH or s3://BUCKET/PATH")
    if not path.strip("/"):
        message = f"--datastream: {location} names no bucket"
        raise ConfigError(message, hint=f"Give {scheme}://BUCKET/PATH")
    extra.require()
    folder = path.strip("/")
    try:
        files = import_module("fsspec").filesystem(scheme)
    except Exception as error:  # noqa: BLE001 - each library has its own
        _refuse(error, location, scheme=scheme)
    return FsspecStore(files, scheme=scheme), folder


def _buffered(raw: Any, path: str, *, scheme: str) -> BinaryIO:
    return cast("BinaryIO", io.BufferedReader(_Reading(raw, path, scheme), _BUFFER_BYTES))


def _refuse(error: Exception, path: str, *, scheme: str) -> NoReturn:
    """Raise the error of this project for one of a library's."""
    kind = type(error).__name__
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        message = f"--datastream: {path} does not exist"
        raise ConfigError(message, hint="Check the location") from error
    if isinstance(error, ValueError) and not scheme:
        # A NUL, or a character that no file name can have; printed as its escape.
        message = f"--datastream: {path!r} is not a path"
        raise ConfigError(message, hint="Check the location") from error
    if isinstance(error, PermissionError):
        message = f"--datastream: {path} may not be read"
        raise ConfigError(message, hint="Grant this principal read access to it") from error
    if any(kind.startswith(one) for one in _LOGINS):
        message = f"--datastream: no credentials for {path} ({kind})"
        raise ConfigError(message, hint=_LOGIN_HINTS.get(scheme, "")) from error
    message = f"{path} cannot be read: {kind}: {error}"
    raise UnreachableError(message, hint="Run it again once it answers") from error
