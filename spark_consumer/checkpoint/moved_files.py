"""Files that are written under a temporary name and moved: local disks, HDFS, Azure's data lake.

On a local disk a file has no checksum beside it, as Hadoop's local files have: the two cannot be
replaced in one step, and Hadoop's own rename deletes the former file first, so that who reads at
that moment finds none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from uuid import uuid4

from tidegate.schemas.errors import UnreachableError
from tidegate.spark_consumer.checkpoint.hadoop_folder import HadoopFolder, NameTaken

UNFINISHED = ".tmp"
"""How the temporary names end that a killed write leaves."""

_NEXT = ".next"
_TRIES = 5
_OVERWRITE = _RECURSIVE = True


def write_temporary(folder: HadoopFolder, name: str, data: bytes) -> str:
    """Write a file under a temporary name in the same folder; return that name."""
    above, slash, file = name.rpartition("/")
    # Two runs may write one file at the same time.
    temporary = f"{above}{slash}.{file}.{uuid4().hex}{UNFINISHED}"

    def write() -> None:
        raw = folder.files.getRaw() if folder.is_local else folder.files
        stream = raw.create(folder.path(temporary), _OVERWRITE)
        try:
            stream.write(bytearray(data))
            stream.hsync()
        finally:
            stream.close()

    folder.call(write)
    return temporary


def _moved(folder: HadoopFolder, name: str, data: bytes, move: Callable[[str, str], None]) -> None:
    temporary = write_temporary(folder, name, data)
    try:
        move(temporary, name)
    finally:
        folder.delete(temporary)


class LocalFiles:
    """Files of a local disk: a hard link names a new one, which a local rename would replace."""

    def __init__(self, folder: HadoopFolder) -> None:
        """Take a folder of the scheme `file`."""
        self._folder = folder

    def create(self, name: str, data: bytes) -> None:
        """Write a file that does not exist; raises NameTaken if it does."""
        _moved(self._folder, name, data, self._link)

    def replace(self, name: str, data: bytes) -> None:
        """Write a file, in place of one that has the name."""
        self.move(write_temporary(self._folder, name, data), name)

    def _link(self, temporary: str, name: str) -> None:
        files = self._folder.jvm.java.nio.file.Files
        self._folder.naming(lambda: files.createLink(self._local(name), self._local(temporary)))

    def move(self, temporary: str, name: str) -> None:
        """Name a file in one step, in place of one that has the name."""
        folder, files = self._folder, self._folder.jvm.java.nio.file
        options = [files.StandardCopyOption.ATOMIC_MOVE]

        def move() -> None:
            # Of a file that an earlier version wrote; it would not be that of the new content.
            checksum = folder.files.getChecksumFile(folder.path(name))
            folder.files.getRaw().delete(checksum, _RECURSIVE)
            how = folder.array(files.CopyOption, options)
            files.Files.move(self._local(temporary), self._local(name), how)

        folder.call(move)

    def _local(self, name: str) -> object:
        """Return the path of a file on this machine as Java's own classes take it."""
        path = self._folder.path(name).toUri().getPath()
        jvm = self._folder.jvm
        return jvm.java.nio.file.Paths.get(path, self._folder.array(jvm.String, []))


class HdfsFiles:
    """Files of HDFS, which renames in one step and, if asked, replaces nothing."""

    def __init__(self, folder: HadoopFolder) -> None:
        """Take a folder of HDFS, by any of its schemes."""
        self._folder = folder

    def create(self, name: str, data: bytes) -> None:
        """Write a file that does not exist; raises NameTaken if it does."""
        _moved(self._folder, name, data, lambda *names: self.move(*names, replace=False))

    def replace(self, name: str, data: bytes) -> None:
        """Write a file, in place of one that has the name."""
        self.move(write_temporary(self._folder, name, data), name, replace=True)

    def move(self, temporary: str, name: str, *, replace: bool) -> None:
        """Name a file as the file system does."""
        folder = self._folder
        options = folder.jvm.org.apache.hadoop.fs.Options.Rename
        how = folder.array(options, [options.OVERWRITE if replace else options.NONE])

        def move() -> None:
            context = folder.jvm.org.apache.hadoop.fs.FileContext.getFileContext(
                folder.files.getUri(), folder.conf
            )
            source, target = (
                folder.files.makeQualified(folder.path(one)) for one in (temporary, name)
            )
            context.rename(source, target, how)

        (folder.call if replace else folder.naming)(move)


class AzureFiles:
    """Files of Azure's data lake, where a rename replaces nothing (`If-None-Match: *`).

    So a replacement has three steps: the new content is named `.<name>.next`, the former file is
    deleted, the new one gets its name.  Who finds no file reads `.<name>.next`, and the next
    writer goes on with one that a kill has left.
    """

    def __init__(self, folder: HadoopFolder) -> None:
        """Take a folder of the scheme `abfs` or `abfss`, in an account with folders of its own."""
        self._folder = folder

    def create(self, name: str, data: bytes) -> None:
        """Write a file that does not exist; raises NameTaken if it does."""
        if self._folder.has(next_name(name)):
            raise NameTaken
        _moved(self._folder, name, data, self._move)

    def replace(self, name: str, data: bytes) -> None:
        """Write a file, in place of one that has the name."""
        for _ in range(_TRIES):
            try:
                _moved(self._folder, next_name(name), data, self._move)
            except NameTaken:
                self._has_finished(name)
                continue
            if self._has_finished(name):
                return
        raise UnreachableError(
            "another run replaces the same file all the time",
            hint="Only one run at a time may work on a checkpoint; end the others",
            folder=self._folder.root,
            file=name,
        )

    def _has_finished(self, name: str) -> bool:
        """Give the new content its name; return whether there is a file now."""
        self._folder.delete(name)
        try:
            self._move(next_name(name), name)
        except NameTaken:
            # Another run has done this in between, and perhaps written once more.  If not, the
            # deletion above was of its file.
            self._folder.delete(next_name(name))
            return self._folder.has(name)
        return True

    def _move(self, source: str, name: str) -> None:
        paths = [self._folder.path(one) for one in (source, name)]
        if not self._folder.naming(lambda: bool(self._folder.files.rename(*paths))):
            raise NameTaken


def next_name(name: str) -> str:
    """Return under which name the new content of a file waits until the former one is deleted."""
    above, slash, file = name.rpartition("/")
    return f"{above}{slash}.{file}{_NEXT}"


def read_replaced(folder: HadoopFolder, name: str) -> bytes | None:
    """Return the bytes of a file that `AzureFiles` has written, or None if there is none."""
    for one in (name, next_name(name), name):
        if (found := folder.read(one)) is not None:
            return found
    return None


def replaced_names(names: Iterable[str]) -> set[str]:
    """Return the names of the files, with those that only their new content has at the moment."""
    listed = set(names)
    waiting = {
        one[1 : -len(_NEXT)] for one in listed if one.startswith(".") and one.endswith(_NEXT)
    }
    return listed | waiting
