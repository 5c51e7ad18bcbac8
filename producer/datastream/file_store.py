"""The store of Datastream's files: a local folder, or a bucket through fsspec.

Only this module opens files and lists folders.  `gs://` and `s3://` need the extra `gcs` or `s3`; a
local folder needs none.  Listings are not cached, because another program writes the files.  No
exception of a library leaves it, and no line of a library's log: a location that does not exist or
that the principal may not read is a ConfigError, a service that does not answer, and a location
that has disappeared, an UnreachableError.

Libraries have no common errors. s3fs raises Python's errors with the service's text; gcsfs has an
`HttpError`, and a plain OSError for a forbidden request.
"""

from __future__ import annotations

import io
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, Protocol, cast

from typing_extensions import Buffer

from tidegate.producer.datastream.errors import printable
from tidegate.program.extras import Extra
from tidegate.schemas.errors import ConfigError, UnreachableError
from tidegate.schemas.instants import parse_rfc3339_ns

_LOGINS = ("NoCredentialsError", "DefaultCredentialsError", "RefreshError", "PartialCredentials")
_REFUSED_BY_ENDPOINT = re.compile(
    "invalid_(client|grant|request|scope)|unauthorized_client|access_denied|reauth", re.IGNORECASE
)
"""Part of the text of a token endpoint that answered about the credentials; any other text, such as
that of a status 503, is about the endpoint."""
_LOGIN_HINTS = {
    "gs": "Give it credentials (GOOGLE_APPLICATION_CREDENTIALS, or the host's own account)",
    "s3": "Give it credentials (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile)",
}
_RIGHT_HINTS = {
    "gs": "Grant this principal the role Storage Object Viewer (roles/storage.objectViewer) on it",
    "s3": "Grant this principal s3:ListBucket on the bucket and s3:GetObject on its objects",
}
_UNAUTHENTICATED = 401
_CHARACTERS_MAX = 300


class PathMissing(ConfigError):  # noqa: N818 - named for what was found
    """A file or folder does not exist."""


class LocationGone(UnreachableError):  # noqa: N818 - named for what was found
    """The bucket or folder that holds all files does not exist, or no longer exists.

    Its files may come back, so their absence proves nothing.
    """


def refuse(error: Exception, path: str, *, scheme: str, setting: str) -> NoReturn:
    """Raise Tidegate's error for one of a library's.

    `scheme` is empty for a path of this machine; `setting` is the setting that contains the path.
    """
    kind, text, path = type(error).__name__, _shortened(error), printable(path)
    may_pass = kind == "RefreshError" and _REFUSED_BY_ENDPOINT.search(text) is None
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        raise PathMissing(f"{setting}: {path} does not exist", hint="Check the location") from error
    if _is_payers(error):
        raise ConfigError(
            f"{setting}: {path} is in a bucket whose requesters pay, which is not supported",
            hint="Use a bucket whose owner pays for requests",
        ) from error
    if isinstance(error, ValueError) and not scheme:
        # A NUL, or a character that no file name can have; printed as its escape.
        raise ConfigError(
            f"{setting}: {path!r} is not a path", hint="Check the location"
        ) from error
    if isinstance(error, PermissionError) or _is_forbidden(error):
        message = f"{setting}: {path} may not be read: {text}"
        hint = _RIGHT_HINTS.get(scheme, "Grant this principal read access to it")
        raise ConfigError(message, hint=hint) from error
    if (any(kind.startswith(name) for name in _LOGINS) or _is_anonymous(error)) and not may_pass:
        raise ConfigError(
            f"{setting}: no credentials for {path} ({kind})", hint=_LOGIN_HINTS.get(scheme, "")
        ) from error
    raise UnreachableError(
        f"{path} cannot be read: {kind}: {text}", hint="Run it again once it answers"
    ) from error


def _is_forbidden(error: Exception) -> bool:
    return type(error) is OSError and str(error).startswith("Forbidden")


def _is_anonymous(error: Exception) -> bool:
    return str(getattr(error, "code", "")) == str(_UNAUTHENTICATED)


def _is_payers(error: Exception) -> bool:
    return isinstance(error, ValueError) and "requester pays" in str(error)


def _shortened(error: Exception) -> str:
    """Return the library's text as one line without a full stop: a hint follows."""
    return printable(" ".join(str(error).split())[:_CHARACTERS_MAX].rstrip("."))


_BUFFER_BYTES = 1 << 20
_BLOCK_BYTES = 4 << 20
"""Bytes that a bucket is asked for at a time, which libraries buffer for each open file; s3fs would
buffer 50 MB."""
_FLAG = "--datastream"
"""The option of `discover`, which errors name unless another setting is given."""
_EXTRAS = {
    "gs": Extra("gcs", ("fsspec", "gcsfs")),
    "s3": Extra("s3", ("fsspec", "s3fs")),
}
_MODIFIED = ("timeCreated", "updated", "mtime", "LastModified", "last_modified", "created")
"""Names of the time of writing; the first one present is used.

Cloud Storage writes an object as a whole, at `timeCreated`; its `updated` also changes with the
metadata, such as a storage class or a hold.
"""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_NS_PER_US = 1_000
_CREDENTIALS = {
    "gs": "they come from GOOGLE_APPLICATION_CREDENTIALS or the host",
    "s3": "they come from the environment, a profile or the host",
}
_SILENT = logging.NullHandler()
_LOGGERS = ("aiobotocore", "asyncio", "botocore", "fsspec", "gcsfs", "google", "s3fs")
_GONE_HINT = "Bring it back: until then nothing is read and no minute is closed"


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or folder."""

    name: str
    path: str
    """The name with which the store opens it."""
    is_folder: bool


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file, and when it was written."""

    path: str
    modified_us: int
    """Since 1970, by the clock of the store."""


class FileStore(Protocol):
    """Files in folders."""

    def entries(self, folder: str) -> list[Entry]:
        """Return the entries of a folder, by name; a file is a folder that holds itself.

        Raises ConfigError and UnreachableError.
        """
        ...

    def files_below(self, folder: str) -> list[StoredFile]:
        """Return the files of a folder and all folders in it; none if there is no such folder.

        Raises LocationGone if the whole location or bucket does not exist, else ConfigError and
        UnreachableError.
        """
        ...

    def open(self, path: str) -> BinaryIO:
        """Open a file to read it from its start; it can seek.

        Opening and reading raise ConfigError and UnreachableError.
        """
        ...

    def written_us(self, path: str) -> int:
        """Return when a file was written, by the clock of the store.

        Raises PathMissing for one that does not exist, else ConfigError and UnreachableError.
        """
        ...


class LocalStore:
    """Files of this machine; errors name `setting`.

    `location` is a folder that must exist, if given: a disk may be unmounted.
    """

    def __init__(self, *, location: str = "", setting: str = _FLAG) -> None:
        self._location = location
        self._setting = setting

    def entries(self, folder: str) -> list[Entry]:
        """Return the entries of a folder, by name; a file is a folder that holds itself."""
        place = Path(folder)
        try:
            if place.is_file():
                return [Entry(place.name, folder, is_folder=False)]
            with os.scandir(place) as scanned:
                entries = [
                    Entry(entry.name, entry.path, is_folder=entry.is_dir()) for entry in scanned
                ]
        except (OSError, ValueError) as error:
            refuse(error, folder, scheme="", setting=self._setting)
        return sorted(entries, key=lambda entry: entry.name)

    def files_below(self, folder: str) -> list[StoredFile]:
        """Return the files of a folder and all folders in it; none if there is no such folder."""
        files: list[StoredFile] = []
        missing: list[FileNotFoundError] = []

        def note(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError):
                raise error
            missing.append(error)

        try:
            for place, _, names in os.walk(folder, onerror=note):
                for name in names:
                    path = f"{place}/{name}"
                    try:
                        status = os.stat(path)  # noqa: PTH116 - a Path for each file is slow
                    except FileNotFoundError as error:
                        note(error)
                    else:
                        files.append(StoredFile(path, _written_ns(status) // _NS_PER_US))
        except (OSError, ValueError) as error:
            refuse(error, folder, scheme="", setting=self._setting)
        # A file or folder that was removed since it was listed does not affect the others.
        if missing and self._location and not Path(self._location).exists():
            raise LocationGone(
                f"{self._setting}: {self._location} is gone", hint=_GONE_HINT
            ) from missing[0]
        return files

    def open(self, path: str) -> BinaryIO:
        """Open a file to read it from its start."""
        try:
            raw = Path(path).open("rb", buffering=0)  # noqa: SIM115 - the caller closes it
        except (OSError, ValueError) as error:
            refuse(error, path, scheme="", setting=self._setting)
        return _buffered(raw, path, scheme="", setting=self._setting)

    def written_us(self, path: str) -> int:
        """Return when a file was written."""
        try:
            return _written_ns(Path(path).stat()) // _NS_PER_US
        except (OSError, ValueError) as error:
            refuse(error, path, scheme="", setting=self._setting)


class FsspecStore:
    """Files of a bucket, or of any other file system of fsspec's."""

    def __init__(self, file_system: Any, *, scheme: str, setting: str = _FLAG) -> None:
        self._files = file_system
        self._scheme = scheme
        self._setting = setting

    def entries(self, folder: str) -> list[Entry]:
        """Return the entries of a folder, by name; a file is a folder that holds itself."""
        try:
            listed = self._files.ls(folder, detail=True)
        except Exception as error:  # noqa: BLE001 - each library has its own
            refuse(error, self._url(folder), scheme=self._scheme, setting=self._setting)
        entries = []
        for info in listed:
            path = info["name"].rstrip("/")
            # Buckets hold empty objects in place of folders, such as the listed one.
            if path == folder.rstrip("/") and info["type"] == "directory":
                continue
            if info["name"].endswith("/") and info["type"] != "directory":
                continue
            name = path.rpartition("/")[2]
            entries.append(Entry(name, path, is_folder=info["type"] == "directory"))
        return sorted(entries, key=lambda info: info.name)

    def files_below(self, folder: str) -> list[StoredFile]:
        """Return the files of a folder and all folders in it; none if there is no such folder."""
        try:
            listed = self._files.find(folder, detail=True)
        except FileNotFoundError as error:  # not of a missing folder, in which it finds no file
            bucket = self._url(folder.lstrip("/").partition("/")[0])
            raise LocationGone(
                f"{self._setting}: the bucket {bucket} is gone", hint=_GONE_HINT
            ) from error
        except Exception as error:  # noqa: BLE001 - each library has its own
            refuse(error, self._url(folder), scheme=self._scheme, setting=self._setting)
        return [
            StoredFile(path, _modified_us(info, self._url(path)))
            for path, info in listed.items()
            if not path.endswith("/")
        ]

    def open(self, path: str) -> BinaryIO:
        """Open a file to read it from its start."""
        try:
            raw = self._files.open(path, "rb", block_size=_BLOCK_BYTES, cache_type="readahead")
        except Exception as error:  # noqa: BLE001 - each library has its own
            refuse(error, self._url(path), scheme=self._scheme, setting=self._setting)
        return _buffered(raw, self._url(path), scheme=self._scheme, setting=self._setting)

    def written_us(self, path: str) -> int:
        """Return when a file was written."""
        try:
            entry = self._files.info(path)
        except Exception as error:  # noqa: BLE001 - each library has its own
            refuse(error, self._url(path), scheme=self._scheme, setting=self._setting)
        return _modified_us(entry, self._url(path))

    def _url(self, path: str) -> str:
        return f"{self._scheme}://{path.lstrip('/')}"


class _Reading(io.RawIOBase):
    """A library's file whose errors are translated to Tidegate's."""

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
            data = self._raw.read(len(view))
        except Exception as error:  # noqa: BLE001 - each library has its own
            refuse(error, self._path, scheme=self._scheme, setting=self._setting)
        view[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._raw.seek(offset, whence))

    def tell(self) -> int:
        return int(self._raw.tell())

    def close(self) -> None:
        self._raw.close()
        super().close()


def open_location(location: str, *, setting: str = _FLAG) -> tuple[FileStore, str]:
    """Return the store of a location, and the folder in it; errors name `setting`.

    Raises ConfigError for an unsupported scheme, and for one whose extra is not installed.
    """
    scheme, separator, path = location.partition("://")
    if not separator:
        path = os.path.expanduser(location)  # noqa: PTH111 - pathlib's raises for no user
    if not separator or scheme == "file":
        return LocalStore(location=path, setting=setting), path
    extra = _EXTRAS.get(scheme)
    if extra is None:
        raise ConfigError(
            f"{setting}: {scheme}:// is not supported",
            hint="Give a local folder, gs://BUCKET/PATH or s3://BUCKET/PATH",
        )
    if not path.strip("/"):
        raise ConfigError(
            f"{setting}: {location} names no bucket", hint=f"Give {scheme}://BUCKET/PATH"
        )
    folder = path.strip("/")
    if "@" in folder.partition("/")[0]:
        raise ConfigError(
            f"{setting}: a bucket's name has no @",
            hint="Leave credentials out of it: " + _CREDENTIALS[scheme],
        )
    extra.require()
    for name in _LOGGERS:  # else Python prints warnings of those without a handler, as plain text
        logging.getLogger(name).addHandler(_SILENT)
    try:
        files = import_module("fsspec").filesystem(scheme, use_listings_cache=False)
    except Exception as error:  # noqa: BLE001 - each library has its own
        refuse(error, location, scheme=scheme, setting=setting)
    return FsspecStore(files, scheme=scheme, setting=setting), folder


def _written_ns(status: os.stat_result) -> int:
    """Return when a file was written here; a copied or moved file keeps its mtime."""
    return max(status.st_mtime_ns, status.st_ctime_ns)


def _modified_us(entry: Mapping[str, Any], url: str) -> int:
    """Return when a file of fsspec's was written; libraries use several names and types for it."""
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
    raise ConfigError(
        f"{url}: the store does not say when it was written",
        hint="Late files are recognised by it: use gs://, s3:// or a folder",
    )


def _buffered(raw: Any, path: str, *, scheme: str, setting: str) -> BinaryIO:
    reading = _Reading(raw, path, scheme=scheme, setting=setting)
    return cast("BinaryIO", io.BufferedReader(reading, _BUFFER_BYTES))
