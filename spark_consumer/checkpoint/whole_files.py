"""How files are written in each kind of store: whole or not at all, and new ones once.

Everything that keeps two runs apart rests on `create`, so a store that cannot decide between two
creators of a file is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Protocol
from uuid import uuid4

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError

from tidegate.schemas.errors import ConfigError, UnreachableError
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
    """Files of a local disk: a hard link names a new one, which a local rename would replace.

    A file has no checksum file, unlike Hadoop's local files: the two cannot be replaced in one
    step, and Hadoop's own rename deletes the former file first, so that a reader at that moment
    finds none.
    """

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
                folder.files.makeQualified(folder.path(place)) for place in (temporary, name)
            )
            context.rename(source, target, how)

        (folder.call if replace else folder.naming)(move)


class AzureFiles:
    """Files of Azure's data lake, where a rename replaces nothing (`If-None-Match: *`).

    So a replacement has three steps: the new content is named `.<name>.next`, the former file is
    deleted, the new one gets its name.  A reader that finds no file reads `.<name>.next`, and the
    next writer continues with one that a kill has left.
    """

    def __init__(self, folder: HadoopFolder) -> None:
        """Take a folder of the scheme `abfs` or `abfss`, in an account with real folders."""
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
        paths = [self._folder.path(place) for place in (source, name)]
        if not self._folder.naming(lambda: bool(self._folder.files.rename(*paths))):
            raise NameTaken


def next_name(name: str) -> str:
    """Return under which name the new content of a file waits until the former one is deleted."""
    above, slash, file = name.rpartition("/")
    return f"{above}{slash}.{file}{_NEXT}"


def read_replaced(folder: HadoopFolder, name: str) -> bytes | None:
    """Return the bytes of a file that `AzureFiles` has written, or None if there is none."""
    for place in (name, next_name(name), name):
        if (data := folder.read(place)) is not None:
            return data
    return None


def replaced_names(names: Iterable[str]) -> set[str]:
    """Return the names of the files, with those that only their new content has at the moment."""
    listed = set(names)
    waiting = {
        file[1 : -len(_NEXT)] for file in listed if file.startswith(".") and file.endswith(_NEXT)
    }
    return listed | waiting


_PUT_TRIES = 3


class PutObjects:
    """Objects below a folder of the scheme `gs`, each put by one request.

    Google's connector sends the generation that an object must have (`ifGenerationMatch`): 0 for a
    new object, and the generation that it has found for one that is replaced.  Its rename copies,
    and replaces by a deletion first, so it is not used; nor is `hsync`, which puts an object twice.
    """

    def __init__(self, folder: HadoopFolder) -> None:
        """Take a folder of Google's connector, or of Hadoop's own."""
        self._folder = folder

    def create(self, name: str, data: bytes) -> None:
        """Put an object that does not exist; raises NameTaken if it does.

        Raises UnreachableError if another run puts it at the same time: the losing run reads it.
        """
        self._put(name, data, may_replace=False)

    def replace(self, name: str, data: bytes) -> None:
        """Put an object, in place of one that has the name."""
        for left in reversed(range(_PUT_TRIES)):
            try:
                self._put(name, data, may_replace=True)
            except UnreachableError:
                # Another run put it between the look at its generation and the request, or the
                # answer was lost.  A store that does not answer ends this by another error.
                if self._folder.read(name) == data:
                    return
                if not left:
                    raise
            else:
                return

    def _put(self, name: str, data: bytes, *, may_replace: bool) -> None:
        path = self._folder.path(name)

        def put() -> None:
            stream = self._folder.files.create(path, may_replace)
            # A stream that is not closed puts no object: a part of the data is never visible.
            stream.write(bytearray(data))
            stream.close()

        (self._folder.call if may_replace else self._folder.naming)(put)


_EXISTS = 412
_BUSY = 409
"""S3's code for another running request for the same object: try again."""

_NEW: Mapping[str, str] = {"If-None-Match": "*"}
_S3_TRIES = 10
_NO_CONDITION = (
    "Use a server with conditional writes (If-None-Match), as Amazon S3 has them: without them two "
    "runs can take one checkpoint"
)
_OPTIONS = ("defaultOptions", "keepingDirs")
"""How Hadoop makes options that change nothing: from 3.4.2 on, and up to 3.4.2."""

_CAUSE_MAX = 300


class S3Objects:
    """Objects below a folder of the scheme `s3a`; Hadoop's client repeats lost requests.

    Hadoop's own way to create a file (`s3a://`, up to 3.4.1) looks first and writes then, and its
    rename copies: of two runs both may win.  S3 decides itself with the header `If-None-Match: *`
    (Amazon S3's user guide, "conditional writes"), which is sent through the client that Hadoop has
    made: endpoint, credentials, encryption and proxy are those of the session.
    """

    def __init__(self, folder: HadoopFolder) -> None:
        """Take a folder.

        Raises ConfigError if this is another generation of `hadoop-aws` than the module knows.
        """
        self._folder = folder
        with _fitting_hadoop():
            internals = folder.call(folder.files.getS3AInternals)
            self._client = folder.call(lambda: internals.getAmazonS3Client("Tidegate's checkpoint"))
        self._is_proved = False

    def replace(self, name: str, data: bytes) -> None:
        """Put an object, in place of one that has the name."""
        self._folder.call(lambda: self._put(name, data, headers={}))

    def create(self, name: str, data: bytes) -> None:
        """Put an object that does not exist; raises NameTaken if it does.

        Raises ConfigError if the server ignores the condition, and UnreachableError if the outcome
        is unknown.
        """
        self._folder.call(lambda: self._put_new(name, data))
        if self._is_proved:
            return
        try:
            self._folder.call(lambda: self._put_new(name, data))
        except NameTaken:
            self._is_proved = True
            return
        raise ConfigError(
            "the object store ignores that an object must be new",
            hint=_NO_CONDITION,
            folder=self._folder.root,
            object=name,
        )

    def _put_new(self, name: str, data: bytes) -> None:
        for _ in range(_S3_TRIES):
            try:
                self._put(name, data, headers=_NEW)
            except Py4JJavaError as error:
                status = _status(error)
                if status == _EXISTS:
                    raise NameTaken from error
                if status != _BUSY:
                    raise
            else:
                return
        raise UnreachableError(
            "the object store does not decide who may write an object",
            hint="Start again; if it stays so, ask the store's operator about If-None-Match",
            folder=self._folder.root,
            object=name,
        )

    def _put(self, name: str, data: bytes, *, headers: Mapping[str, str]) -> None:
        request = self._request(name, len(data))
        sdk = self._folder.jvm.software.amazon.awssdk
        more = sdk.awscore.AwsRequestOverrideConfiguration.builder()
        for header, value in headers.items():
            more = more.putHeader(header, value)
        body = sdk.core.sync.RequestBody.fromBytes(bytearray(data))
        self._client.putObject(request.overrideConfiguration(more.build()).build(), body)

    def _request(self, name: str, size: int) -> Any:
        """Ask Hadoop's factory, for the encryption, storage class and access list that it sets."""
        files = self._folder.files
        with _fitting_hadoop():
            key = str(files.pathToKey(self._folder.path(name)))
            factory = files.getRequestFactory()
            return factory.newPutObjectRequestBuilder(key, self._options, size, False)  # noqa: FBT003 - a call of Java

    @cached_property
    def _options(self) -> Any:
        options = self._folder.jvm.org.apache.hadoop.fs.s3a.impl.PutObjectOptions
        names = dir(options)
        return getattr(
            options, next((option for option in _OPTIONS if option in names), _OPTIONS[0])
        )()


def _status(error: Py4JJavaError) -> int | None:
    thrown = error.java_exception
    if not str(thrown.getClass().getName()).endswith(".S3Exception"):
        return None
    return int(thrown.statusCode())


@contextmanager
def _fitting_hadoop() -> Iterator[None]:
    """Name what py4j says of a class or method that the JVM does not have."""
    try:
        yield
    except (Py4JJavaError, Py4JNetworkError):
        raise
    except (Py4JError, TypeError) as error:
        raise ConfigError(
            "hadoop-aws has not what a checkpoint in S3 needs",
            hint="Use the hadoop-aws of Spark's own Hadoop, from 3.4.1 on",
            cause=str(error)[:_CAUSE_MAX],
        ) from error


_HDFS = frozenset({"hdfs", "webhdfs", "swebhdfs"})
_HAS_FOLDERS = "fs.capability.etags.preserved.in.rename"
"""What Hadoop says of an account of Azure with a hierarchical namespace, and of no other."""

_PLACES = "a local disk, HDFS, s3a://, gs:// or abfss:// (with a hierarchical namespace)"


class WholeFiles(Protocol):
    """Writes the files of one folder; a concurrent reader finds the former file or the new one.

    Methods raise UnreachableError if the store fails; the file may be written then.
    """

    def create(self, name: str, data: bytes) -> None:
        """Write a file that does not exist; raises NameTaken if it does.

        Of any number of simultaneous calls one at most returns.
        """
        ...

    def replace(self, name: str, data: bytes) -> None:
        """Write a file, in place of one that has the name."""
        ...


def find_whole_files(folder: HadoopFolder) -> WholeFiles:
    """Return how files are written to a folder; raises ConfigError for a store that may not be."""
    schemes = folder.schemes
    if schemes <= _HDFS:
        return HdfsFiles(folder)
    if schemes == {"file"}:
        return LocalFiles(folder)
    if schemes == {"s3a"}:
        return S3Objects(folder)
    if schemes == {"gs"}:
        return PutObjects(folder)
    if folder.is_in_azure and folder.can(_HAS_FOLDERS):
        return AzureFiles(folder)
    raise ConfigError(
        "the store of a folder cannot decide which of two runs creates a file",
        hint="Write s3a:// in place of s3://" if schemes == {"s3"} else f"Use {_PLACES}",
        folder=folder.root,
        scheme=", ".join(sorted(schemes)),
    )
