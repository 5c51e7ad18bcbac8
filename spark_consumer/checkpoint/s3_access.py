"""How Spark's session reaches one bucket: settings and credentials, for another S3 client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from tidegate.schemas.errors import UnreachableError

_Answer = TypeVar("_Answer")


class S3Credentials(NamedTuple):
    """A key pair, with a token where it is for a while only."""

    access_key: str
    secret_key: str
    session_token: str | None

    def __repr__(self) -> str:
        return "S3Credentials(***)"


class S3Access:
    """What Hadoop's file system of the scheme `s3a` was set up with; every method blocks.

    They raise UnreachableError if the JVM cannot say it, and Py4JError for a Hadoop that is not the
    3.4.1 of Spark 4.0.
    """

    def __init__(self, files: Any) -> None:
        """Take the file system as the JVM has it."""
        self._files = files
        # Settings of one bucket (`fs.s3a.bucket.<name>.*`) are among its own.
        self._conf = files.getConf()
        self._providers: Any = None

    @property
    def bucket(self) -> str:
        """The bucket's name."""
        return str(self._files.getBucket())

    def setting(self, name: str) -> str:
        """Return the value of `fs.s3a.<name>`, empty where it is not set."""
        return str(self._conf.getTrimmed(f"fs.s3a.{name}", ""))

    def region(self) -> str:
        """Return the bucket's region, as S3 says it."""
        return _answered(lambda: str(self._files.getS3AInternals().getBucketLocation()))

    def credentials(self) -> S3Credentials | None:
        """Return credentials that are valid now, None for anonymous access."""
        if self._providers is None:
            internals = self._files.getS3AInternals()
            self._providers = _answered(
                lambda: internals.shareCredentials("Tidegate's small releases")
            )
        found = _answered(self._providers.resolveCredentials)
        if found.accessKeyId() is None:
            return None
        # Only AwsSessionCredentials have the method.
        has_token = "Session" in str(found.getClass().getSimpleName())
        token = str(found.sessionToken()) if has_token else None
        return S3Credentials(str(found.accessKeyId()), str(found.secretAccessKey()), token)


def _answered(ask: Callable[[], _Answer]) -> _Answer:
    try:
        return ask()
    except Py4JJavaError as error:
        message = "Spark's session does not say how it reaches the bucket"
        # Hadoop's texts name providers, never keys.
        cause = str(error.java_exception.toString())
        raise UnreachableError(
            message,
            hint="Check spark.hadoop.fs.s3a.* of the session: endpoint, region, credentials",
            cause=cause,
        ) from error
