"""How Spark's session reaches one bucket: settings and credentials, for another client."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tidegate.schemas.errors import UnreachableError

if TYPE_CHECKING:
    from tidegate.spark_consumer.checkpoint.hadoop_folder import HadoopFolder


_Answer = TypeVar("_Answer")
_GOOGLES = ("fs.gs", "google.cloud")


class S3Credentials(NamedTuple):
    """A key pair, with a token where it is for a while only."""

    access_key: str
    secret_key: str
    session_token: str | None

    def __repr__(self) -> str:
        return "S3Credentials(***)"


class S3Access:
    """What Hadoop's file system of the scheme `s3a` was set up with; every method blocks.

    They raise UnreachableError if the JVM cannot say it, and Py4JError for another generation of
    Hadoop.
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
        credentials = _answered(self._providers.resolveCredentials)
        if credentials.accessKeyId() is None:
            return None
        # Only AwsSessionCredentials have the method.
        has_token = "Session" in str(credentials.getClass().getSimpleName())
        token = str(credentials.sessionToken()) if has_token else None
        return S3Credentials(
            str(credentials.accessKeyId()), str(credentials.secretAccessKey()), token
        )


class GcsAccess:
    """What the file system of the scheme `gs` was set up with: Google's connector, or Hadoop's."""

    def __init__(self, files: Any) -> None:
        """Take the file system as the JVM has it."""
        self._conf = files.getConf()

    def setting(self, name: str) -> str:
        """Return the value of `fs.gs.<name>`, or of the setting of all of Google's connectors.

        Empty where it is not set.
        """
        values = (self._conf.getTrimmed(f"{prefix}.{name}", "") for prefix in _GOOGLES)
        return next((str(value) for value in values if value), "")

    def begins(self, name: str) -> bool:
        """Whether there is a setting with this prefix."""
        return any(
            not self._conf.getPropsWithPrefix(f"{prefix}.{name}").isEmpty() for prefix in _GOOGLES
        )


StoreAccess = S3Access | GcsAccess


def find_access(folder: HadoopFolder) -> StoreAccess | None:
    """Return how Spark's session reaches a folder; None if another client needs no settings for it.

    That is also the answer for a store that no other client is set up for.
    """
    if folder.schemes == {"s3a"}:
        return S3Access(folder.files)
    return GcsAccess(folder.files) if folder.schemes == {"gs"} else None


def _answered(ask: Callable[[], _Answer]) -> _Answer:
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - `tail` is without Spark

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
