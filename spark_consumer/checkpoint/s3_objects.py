"""Objects of one S3 bucket, each put by one request, and a new one only where there is none.

Hadoop's own way to create a file (`s3a://`, up to 3.4.1) looks first and writes then, and its
rename copies: of two runs both may win.  S3 decides itself with the header `If-None-Match: *`
(Amazon S3's user guide, "conditional writes"), which this module sends through the client that
Hadoop has made: endpoint, credentials, encryption and proxy are those of the session.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError  # type: ignore[import-untyped]

from tidegate.schemas.errors import ConfigError, UnreachableError

_EXISTS = 412
_BUSY = 409
"""Another request for the same object is going on; S3 asks to try again."""

_TRIES = 10
_NO_CONDITION = (
    "Use a server with conditional writes (If-None-Match), as Amazon S3 has them: without them two "
    "runs can take one checkpoint"
)
_MARK = "tidegate-write"
_CAUSE_MAX = 300


class S3Objects:
    """The objects of the bucket that a Hadoop file system of the scheme `s3a` is about.

    Every method blocks; Hadoop's client repeats a request that gets no answer.  All but the named
    errors are Py4JJavaError, as of any call into the JVM.
    """

    def __init__(self, jvm: Any, files: Any) -> None:
        """Take the gateway's view of the JVM, and the file system in it.

        Raises ConfigError if this is another generation of `hadoop-aws` than the module knows.
        """
        self._jvm = jvm
        self._files = files
        with _fitting_hadoop():
            self._client = files.getS3AInternals().getAmazonS3Client("Tidegate's checkpoint")
        self._is_proved = False

    def put(self, path: Any, data: bytes) -> None:
        """Write or replace an object; `path` is Hadoop's."""
        self._put(self._key(path), data, headers={}, mark=None)

    def put_new(self, path: Any, data: bytes) -> bool:
        """Write an object if there is none; return whether this call wrote it.

        Raises ConfigError if the server ignores the condition, and UnreachableError if it stays
        undecided.
        """
        key = self._key(path)
        mark = uuid4().hex
        is_new = self._is_put_where_none_is(key, data, mark)
        if is_new and not self._is_proved:
            if self._is_put_where_none_is(key, data, mark=""):
                raise ConfigError(
                    "the object store ignores that an object must be new",
                    hint=_NO_CONDITION,
                    bucket=self._bucket,
                    object=key,
                )
            self._is_proved = True
        return is_new

    def _is_put_where_none_is(self, key: str, data: bytes, mark: str) -> bool:
        for _ in range(_TRIES):
            try:
                self._put(key, data, headers={"If-None-Match": "*"}, mark=mark)
            except Py4JJavaError as error:
                status = _status(error)
                if status == _EXISTS:
                    # The answer to a first request may have been lost, and this is the second.
                    return self._mark(key) == mark
                if status != _BUSY:
                    raise
            else:
                return True
        raise UnreachableError(
            "the object store does not decide who may write an object",
            hint="Start again; if it stays so, ask the store's operator about If-None-Match",
            bucket=self._bucket,
            object=key,
        )

    def _put(self, key: str, data: bytes, *, headers: Mapping[str, str], mark: str | None) -> None:
        request = self._request(key, len(data))
        if mark is not None:
            request = request.metadata({_MARK: mark})
        more = self._jvm.software.amazon.awssdk.awscore.AwsRequestOverrideConfiguration.builder()
        for name, value in headers.items():
            more = more.putHeader(name, value)
        body = self._jvm.software.amazon.awssdk.core.sync.RequestBody.fromBytes(bytearray(data))
        self._client.putObject(request.overrideConfiguration(more.build()).build(), body)

    def _request(self, key: str, size: int) -> Any:
        """Ask Hadoop's factory, for the encryption, storage class and access list that it sets."""
        with _fitting_hadoop():
            options = self._jvm.org.apache.hadoop.fs.s3a.impl.PutObjectOptions.keepingDirs()
            factory = self._files.getRequestFactory()
            return factory.newPutObjectRequestBuilder(key, options, size, False)  # noqa: FBT003 - a call of Java

    def _mark(self, key: str) -> str | None:
        head = self._jvm.software.amazon.awssdk.services.s3.model.HeadObjectRequest.builder()
        found = self._client.headObject(head.bucket(self._bucket).key(key).build())
        mark = found.metadata().get(_MARK)
        return None if mark is None else str(mark)

    @property
    def _bucket(self) -> str:
        return str(self._files.getBucket())

    def _key(self, path: Any) -> str:
        return str(self._files.pathToKey(path))


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
            hint="Use Spark 4.0 with the hadoop-aws of its own Hadoop, 3.4.1",
            cause=str(error)[:_CAUSE_MAX],
        ) from error
