"""Small files on any file system that Spark can write to, through Hadoop's FileSystem in its JVM.

A folder has one writer (see `writers`), and every write first checks for a younger one.  A file
appears whole or not at all: it is written under a temporary name and renamed, or, in S3, put by one
request.

On a local disk it has no checksum beside it, as Hadoop's local files have: the two cannot be
replaced in one step, and Hadoop's own rename deletes the former file first, so that who reads at
that moment finds none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from tidegate.schemas.errors import UnreachableError
from tidegate.spark_consumer.checkpoint.file_systems import (
    is_missing_file_system,
    missing_file_system,
)
from tidegate.spark_consumer.checkpoint.json_files import decoded
from tidegate.spark_consumer.checkpoint.s3_access import S3Access
from tidegate.spark_consumer.checkpoint.s3_objects import S3Objects
from tidegate.spark_consumer.checkpoint.writers import Writers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_Result = TypeVar("_Result")
_OVERWRITE = _RECURSIVE = True
_UNFINISHED = ".tmp"
_HADOOP_PATTERN = frozenset("{}[]*?\\^")
"""In a path that has one of these, Hadoop cannot be asked for names alone."""
_EXISTS = frozenset(
    {
        "java.nio.file.FileAlreadyExistsException",
        "org.apache.hadoop.fs.FileAlreadyExistsException",
    }
)
_MISSING = "java.io.FileNotFoundException"


class Storage:
    """One folder: implements `JsonStorage`; names are paths relative to it.

    Every method blocks, and raises UnreachableError if the file system fails.  To open a folder
    raises ConfigError if Spark has no file system for its scheme.
    """

    def __init__(self, spark: SparkSession, root: str, *, guard: Storage | None = None) -> None:
        """Open a folder; nothing is written before `take`.

        With a `guard`, the writer of that folder is the writer of this one.
        """
        # pyspark has no public access to Hadoop's FileSystem; only this module uses the private.
        context: Any = spark.sparkContext
        self._gateway = context._gateway  # noqa: SLF001
        self._jvm = self._gateway.jvm
        self._conf = context._jsc.hadoopConfiguration()  # noqa: SLF001
        self.root = root
        self._folder = self._jvm.org.apache.hadoop.fs.Path(root)
        self._files = self._call(self._file_system)
        self.root = str(self._files.makeQualified(self._folder).toString())
        self.writers: Writers = Writers(self) if guard is None else guard.writers

    def _file_system(self) -> Any:
        try:
            return self._folder.getFileSystem(self._conf)
        except Py4JJavaError as error:
            if any(
                is_missing_file_system(str(one.getClass().getName()), str(one.getMessage()))
                for one in _causes(error.java_exception)
            ):
                raise missing_file_system(self.root) from error
            raise

    @cached_property
    def _objects(self) -> S3Objects | None:
        """What puts objects where the folder is in S3.  One that is only read needs nothing."""
        if self._files.getScheme() != "s3a":
            return None
        return self._call(lambda: S3Objects(self._jvm, self._files))

    def s3_access(self) -> S3Access | None:
        """Return how Spark's session reaches the folder where it is in S3, else None."""
        return S3Access(self._files) if self._files.getScheme() == "s3a" else None

    def path(self, name: str) -> str:
        """Return the whole path of a name, for Spark's readers and writers."""
        return f"{self.root}/{name}"

    def take(self) -> int:
        """Become the folder's writer; return its number.  Former writers are refused from then."""
        return self.writers.take()

    def read(self, name: str) -> bytes | None:
        """Return a file's bytes, or None if there is no such file."""

        def read() -> bytes:
            stream = self._files.open(self._path(name))
            try:
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()

        return self._call(lambda: self._unless_missing(name, read))

    def read_json(self, name: str) -> dict[str, Any] | None:
        """Return a JSON file's content, or None if there is no such file.

        Raises CheckpointMismatch if it is not JSON.
        """
        data = self.read(name)
        return None if data is None else decoded(data, file=self.path(name))

    def write_json(self, name: str, content: object) -> None:
        """Write or replace a file; raises WriterReplaced if there is a younger writer."""
        self.write(name, _encoded(content))

    def write(self, name: str, data: bytes) -> None:
        """Do as `write_json` with a file of any bytes."""
        self.require_writer()
        if (objects := self._objects) is not None:
            self._call(lambda: objects.put(self._path(name), data))
        elif self._is_local:
            self._move(self._write_temporary(name, data), name)
        else:
            self._rename(self._write_temporary(name, data), name, replace=True)

    def create_json(self, name: str, content: object) -> bool:
        """Write a file if it does not exist; return whether this call wrote it."""
        self.require_writer()
        return self.create(name, content)

    def create(self, name: str, content: object) -> bool:
        """Do as `create_json`, also for a run that is not the writer."""
        return self._create_new(name, _encoded(content))

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder, sorted; empty if it does not exist."""

        def names() -> list[str]:
            path = self._path(folder)
            if not self._files.exists(path):
                return []
            found = [str(one.getPath().getName()) for one in self._files.listStatus(path)]
            return sorted(name for name in found if not name.startswith((".", "_")))

        return self._call(names)

    def written_ms(self, name: str) -> int | None:
        """Return when a file was written last, in milliseconds since 1970; None without it.

        By the file system's clock.
        """

        def find() -> int:
            return int(self._files.getFileStatus(self._path(name)).getModificationTime())

        return self._call(lambda: self._unless_missing(name, find))

    def _unless_missing(self, name: str, action: Callable[[], _Result]) -> _Result | None:
        """Return what an action returns; None if its file is missing."""
        try:
            return action()
        except Py4JJavaError as error:
            if str(error.java_exception.getClass().getName()) != _MISSING:
                raise
        if not self._files.exists(self._path(name)):
            return None
        return action()  # Java says the same of a file that may not be read

    def delete(self, names: Iterable[str]) -> None:
        """Delete files, and folders with their content; missing ones are no error."""
        self.require_writer()
        for name in names:
            self._delete(name)

    def _delete(self, name: str) -> None:
        self._call(lambda: self._files.delete(self._path(name), _RECURSIVE))

    def delete_unfinished(self, folders: Iterable[str], *, written_before_ms: int) -> int:
        """Delete what killed writes have left in some folders; return how many files.

        Milliseconds since 1970, by the file system's clock.  A write that began before and is still
        going on fails.
        """
        self.require_writer()

        def find() -> list[str]:
            return [
                f"{folder}/{one.getPath().getName()}"
                for folder in folders
                for one in self._temporary(folder)
                if one.isFile() and one.getModificationTime() < written_before_ms
            ]

        names = self._call(find)
        for name in names:
            self._delete(name)
        return len(names)

    def _temporary(self, folder: str) -> list[Any]:
        """Return the temporary files of a folder, which may hold a hundred thousand others."""
        path = self._path(folder)
        if not self._files.exists(path):
            return []
        if _HADOOP_PATTERN.isdisjoint(str(path.toString())):
            pattern = self._jvm.org.apache.hadoop.fs.Path(path, f".*{_UNFINISHED}")
            return list(self._files.globStatus(pattern) or ())
        files = self._files.listStatus(path)
        return [one for one in files if str(one.getPath().getName()).endswith(_UNFINISHED)]

    def require_writer(self) -> None:
        """Raise WriterReplaced if there is a younger writer, or `take` was never called."""
        self.writers.require()

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._folder, name)

    def _write_temporary(self, name: str, data: bytes) -> str:
        folder, slash, file = name.rpartition("/")
        # Two runs may write one file at the same time.
        temporary = f"{folder}{slash}.{file}.{uuid4().hex}{_UNFINISHED}"

        def write() -> None:
            files = self._files.getRaw() if self._is_local else self._files
            stream = files.create(self._path(temporary), _OVERWRITE)
            try:
                stream.write(bytearray(data))
                stream.hsync()
            finally:
                stream.close()

        self._call(write)
        return temporary

    def _create_new(self, name: str, data: bytes) -> bool:
        if (objects := self._objects) is not None:
            return self._call(lambda: objects.put_new(self._path(name), data))
        temporary = self._write_temporary(name, data)
        try:
            if self._is_local:
                self._link(temporary, name)
            else:
                self._rename(temporary, name, replace=False)
        except _FileExistsAlready:
            return False
        finally:
            self._delete(temporary)
        return True

    @cached_property
    def _is_local(self) -> bool:
        return str(self._files.getScheme()) == "file"

    def _link(self, temporary: str, name: str) -> None:
        """Name a file unless the name is taken: a local rename would replace the other file."""

        def link() -> None:
            self._jvm.java.nio.file.Files.createLink(self._local(name), self._local(temporary))

        self._call(link)

    def _move(self, temporary: str, name: str) -> None:
        """Name a file in one step, in place of one that has the name."""
        options = self._jvm.java.nio.file.StandardCopyOption
        how = self._array(self._jvm.java.nio.file.CopyOption, [options.ATOMIC_MOVE])

        def move() -> None:
            # Of a file that an earlier version wrote; it would not be that of the new content.
            self._files.getRaw().delete(self._files.getChecksumFile(self._path(name)), _RECURSIVE)
            self._jvm.java.nio.file.Files.move(self._local(temporary), self._local(name), how)

        self._call(move)

    def _local(self, name: str) -> Any:
        """Return the path of a file on this machine as Java's own classes take it."""
        path = self._path(name).toUri().getPath()
        return self._jvm.java.nio.file.Paths.get(path, self._array("String", []))

    def _rename(self, temporary: str, name: str, *, replace: bool) -> None:
        """Name a file as the file system does."""
        options = self._jvm.org.apache.hadoop.fs.Options.Rename
        how = self._array(options, [options.OVERWRITE if replace else options.NONE])

        def rename() -> None:
            context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(
                self._files.getUri(), self._conf
            )
            source, target = (
                self._files.makeQualified(self._path(one)) for one in (temporary, name)
            )
            context.rename(source, target, how)

        self._call(rename)

    def _array(self, kind: Any, items: list[Any]) -> Any:
        array = self._gateway.new_array(self._jvm.String if kind == "String" else kind, len(items))
        for index, item in enumerate(items):
            array[index] = item
        return array

    def _call(self, action: Callable[[], _Result]) -> _Result:
        """Call into the JVM and translate its exceptions."""
        try:
            return action()
        except Py4JJavaError as error:
            thrown = error.java_exception
            if str(thrown.getClass().getName()) in _EXISTS:
                raise _FileExistsAlready from error
            raise UnreachableError(
                "the storage rejected a request",
                hint="Check the folder, its permissions and the file system's settings",
                folder=self.root,
                cause=str(thrown.toString()),
            ) from error


class _FileExistsAlready(Exception):  # noqa: N818 - an answer, not an error
    """The file exists."""


def _causes(thrown: Any) -> Iterator[Any]:
    while thrown is not None:
        yield thrown
        thrown = thrown.getCause()


def _encoded(content: object) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"
