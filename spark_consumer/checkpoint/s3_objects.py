"""Objects of S3, each put by one request, and a new one only where there is none.

Hadoop's own way to create a file (`s3a://`, up to 3.4.1) looks first and writes then, and its
rename copies: of two runs both may win.  S3 decides itself with the header `If-None-Match: *`
(Amazon S3's user guide, "conditional writes"), which this module sends through the client that
Hadoop has made: endpoint, credentials, encryption and proxy are those of the session.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError  # type: ignore[import-untyped]

from tidegate.schemas.errors import ConfigError, UnreachableError
from tidegate.spark_consumer.checkpoint.hadoop_folder import HadoopFolder, NameTaken

_EXISTS = 412
_BUSY = 409
"""Another request for the same object is going on; S3 asks to try again."""

_NEW: Mapping[str, str] = {"If-None-Match": "*"}
_TRIES = 10
_NO_CONDITION = (
    "Use a server with conditional writes (If-None-Match), as Amazon S3 has them: without them two "
    "runs can take one checkpoint"
)
_OPTIONS = ("defaultOptions", "keepingDirs")
"""How Hadoop makes options that change nothing: from 3.4.2 on, and up to 3.4.2."""

_CAUSE_MAX = 300


class S3Objects:
    """Objects below a folder of the scheme `s3a`; Hadoop's client repeats lost requests."""

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

        Raises ConfigError if the server ignores the condition, and UnreachableError if it stays
        undecided.
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
        for _ in range(_TRIES):
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
        known = dir(options)
        return getattr(options, next((one for one in _OPTIONS if one in known), _OPTIONS[0]))()


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
