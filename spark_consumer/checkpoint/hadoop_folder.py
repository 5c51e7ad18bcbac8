"""One folder of a file system that Spark has, through Hadoop's FileSystem in its JVM.

Names are paths relative to the folder.  Every method blocks, and raises UnreachableError if the
file system fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from py4j.protocol import Py4JJavaError

from tidegate.schemas.errors import ConfigError, UnreachableError
from tidegate.spark_consumer.checkpoint.file_systems import (
    is_missing_file_system,
    missing_file_system,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_Result = TypeVar("_Result")
_RECURSIVE = True
_HADOOP_PATTERN = frozenset("{}[]*?\\^")
"""In a path that has one of these, Hadoop cannot be asked for names alone."""
_EXISTS = frozenset(
    {
        "java.nio.file.FileAlreadyExistsException",
        "org.apache.hadoop.fs.FileAlreadyExistsException",
    }
)
_AZURE = frozenset({"abfs", "abfss"})
_DENIED = re.compile(
    r"AccessDenied|AccessControl|NoAuthWith|NoAwsCredentials|[Aa]ccess token|metadata server"
    r"|computeMetadata|\b40[13]\b"
)
"""What Hadoop's file systems say where a login is missing, wrong or not enough."""

_LOGINS = "spark.hadoop.fs.s3a.*, fs.gs.auth.*, fs.azure.account.*"
_CAUSE_MAX = 500
_MOUNTS = "viewfs"
_MISSING = "java.io.FileNotFoundException"


class NameTaken(Exception):  # noqa: N818 - an answer, not an error
    """A file has the name already."""


class HadoopFolder:
    """An open folder; `call` and `naming` are for other Java calls on it."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        """Open a folder; nothing is written.

        Raises ConfigError if Spark has no file system for its scheme, or no login for it.
        """
        # pyspark has no public access to Hadoop's FileSystem; only this module uses the private.
        context: Any = spark.sparkContext
        self._gateway = context._gateway  # noqa: SLF001
        self.jvm = self._gateway.jvm
        self.conf = context._jsc.hadoopConfiguration()  # noqa: SLF001
        self.root = root
        self._folder = self.jvm.org.apache.hadoop.fs.Path(root)
        try:
            self.files = self.call(self._file_system)
        except UnreachableError as error:
            if not root.startswith("gs:"):
                raise
            # The connector has read settings and credentials, and asked no server.
            raise ConfigError(
                "the file system of a folder does not open with the session's settings",
                hint="Check the credentials and other settings of spark.hadoop.fs.gs.*",
                folder=root,
                cause=error.fields["cause"],
            ) from error
        self.root = str(self.files.makeQualified(self._folder).toString())

    def _file_system(self) -> Any:
        try:
            return self._folder.getFileSystem(self.conf)
        except Py4JJavaError as error:
            if any(
                is_missing_file_system(str(cause.getClass().getName()), str(cause.getMessage()))
                for cause in _causes(error.java_exception)
            ):
                raise missing_file_system(self.root) from error
            raise

    @cached_property
    def schemes(self) -> frozenset[str]:
        """The scheme of the folder's file system; for `viewfs`, those of its mounts."""

        def find() -> frozenset[str]:
            scheme = str(self.files.getScheme())
            mounted = self.files.getChildFileSystems() if scheme == _MOUNTS else [self.files]
            return frozenset(str(files.getScheme()) for files in mounted)

        return self.call(find)

    @property
    def is_local(self) -> bool:
        """Whether the folder is on a disk of this machine."""
        return self.schemes == {"file"}

    @property
    def is_in_azure(self) -> bool:
        """Whether the folder is in Azure's data lake."""
        return self.schemes <= _AZURE

    def can(self, capability: str) -> bool:
        """Whether the file system has a capability, as Hadoop names them."""
        return self.call(lambda: bool(self.files.hasPathCapability(self._folder, capability)))

    def path(self, name: str) -> Any:
        """Return a file's path as Hadoop takes it."""
        return self.jvm.org.apache.hadoop.fs.Path(self._folder, name)

    def read(self, name: str) -> bytes | None:
        """Return a file's bytes, or None if there is no such file."""

        def read() -> bytes:
            stream = self.files.open(self.path(name))
            try:
                return bytes(self.jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()

        return self.call(lambda: self._unless_missing(name, read))

    def has(self, name: str) -> bool:
        """Whether there is a file, or a folder."""
        return self.call(lambda: bool(self.files.exists(self.path(name))))

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder, sorted; empty if it does not exist."""

        def names() -> list[str]:
            path = self.path(folder)
            if not self.files.exists(path):
                return []
            return sorted(str(status.getPath().getName()) for status in self.files.listStatus(path))

        return self.call(names)

    def written_ms(self, name: str) -> int | None:
        """Return when a file was written last, in milliseconds since 1970; None without it."""

        def find() -> int:
            return int(self.files.getFileStatus(self.path(name)).getModificationTime())

        return self.call(lambda: self._unless_missing(name, find))

    def _unless_missing(self, name: str, action: Callable[[], _Result]) -> _Result | None:
        """Return the result of an action; None if its file is missing."""
        try:
            return action()
        except Py4JJavaError as error:
            if str(error.java_exception.getClass().getName()) != _MISSING:
                raise
        if not self.files.exists(self.path(name)):
            return None
        return action()  # Java says the same of a file that may not be read

    def delete(self, name: str) -> None:
        """Delete a file, or a folder with its content; a missing one is not an error."""
        self.call(lambda: self.files.delete(self.path(name), _RECURSIVE))

    def move_folder(self, name: str, to: str) -> None:
        """Give a folder another name, which no file or folder may have."""

        def move() -> bool:
            target = self.path(to)
            self.files.mkdirs(target.getParent())
            return bool(self.files.rename(self.path(name), target))

        if not self.call(move):
            raise UnreachableError(
                "the storage has not moved a folder",
                hint="Check whether both folders can be written to; then start again",
                folder=self.root,
                source=name,
                target=to,
            )

    def ending_with(self, end: str, folder: str, *, written_before_ms: int) -> list[str]:
        """Return the names of a folder's old hidden files with this suffix.

        The folder may hold 100,000 other files.  Times are milliseconds since 1970 by the file
        system's clock.
        """

        def find() -> list[str]:
            return [
                f"{folder}/{status.getPath().getName()}"
                for status in self._statuses(end, folder)
                if status.isFile() and status.getModificationTime() < written_before_ms
            ]

        return self.call(find)

    def _statuses(self, end: str, folder: str) -> list[Any]:
        path = self.path(folder)
        if not self.files.exists(path):
            return []
        if _HADOOP_PATTERN.isdisjoint(str(path.toString())):
            pattern = self.jvm.org.apache.hadoop.fs.Path(path, f".*{end}")
            return list(self.files.globStatus(pattern) or ())
        return [
            status
            for status in self.files.listStatus(path)
            if status.getPath().getName().endswith(end)
        ]

    def array(self, kind: Any, items: list[Any]) -> Any:
        """Return an array of Java; `kind` is its class."""
        array = self._gateway.new_array(kind, len(items))
        for index, item in enumerate(items):
            array[index] = item
        return array

    def call(self, action: Callable[[], _Result]) -> _Result:
        """Call into the JVM; raises UnreachableError for what Java raises."""
        try:
            return action()
        except Py4JJavaError as error:
            raise self._rejected(error) from error
        except Exception as error:
            # pyspark, which is not imported before a session starts, replaces some of Java's.
            if not type(error).__module__.startswith("pyspark.errors."):
                raise
            raise self._rejected(error) from error

    def naming(self, action: Callable[[], _Result]) -> _Result:
        """Do as `call`; raises NameTaken where Java says that the file exists."""

        def named() -> _Result:
            try:
                return action()
            except Py4JJavaError as error:
                if str(error.java_exception.getClass().getName()) in _EXISTS:
                    raise NameTaken from error
                raise

        return self.call(named)

    def require_access(self) -> None:
        """Raise ConfigError if the store rejects the session's login or permits nothing."""
        try:
            self.call(lambda: self.files.exists(self._folder))
        except UnreachableError as error:
            if _DENIED.search(str(error.fields["cause"])):
                raise self._denied(error) from error
            raise

    def _rejected(self, error: Exception) -> UnreachableError:
        if isinstance(error, Py4JJavaError):
            texts = [str(cause.toString()) for cause in _causes(error.java_exception)]
        else:
            texts = [f"{type(error).__name__}: {error}"]
        outer, root = texts[0], texts[-1]
        return UnreachableError(
            "the storage rejected a request",
            hint="Check the folder, its permissions and the file system's settings",
            folder=self.root,
            cause=outer if root in outer else f"{outer}: {root}",
        )

    def _denied(self, error: UnreachableError) -> ConfigError:
        return ConfigError(
            "the storage denies the session access to a folder",
            hint=f"Check the credentials that Spark has ({_LOGINS}), and what they permit",
            folder=self.root,
            cause=str(error.fields["cause"])[:_CAUSE_MAX],
        )


def _causes(thrown: Any) -> Iterator[Any]:
    while thrown is not None:
        yield thrown
        thrown = thrown.getCause()
