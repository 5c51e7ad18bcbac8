"""The errors of stores of files: one of a library's becomes one of this project's.

Libraries have no common errors.  s3fs raises Python's own ones, with the service's words in them;
gcsfs has an `HttpError` of its own, and a plain OSError for what is forbidden.
"""

from __future__ import annotations

import re
from typing import NoReturn

from tidegate.producer.datastream.position import printable
from tidegate.schemas.errors import ConfigError, UnreachableError

_LOGINS = ("NoCredentialsError", "DefaultCredentialsError", "RefreshError", "PartialCredentials")
_REFUSED_BY_ENDPOINT = re.compile(
    "invalid_(client|grant|request|scope)|unauthorized_client|access_denied|reauth", re.IGNORECASE
)
"""In the text of a token endpoint that answered about the credentials; any other text, such as that
of a status 503, is about the endpoint."""
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
    """The bucket or folder that holds all files does not exist (any more).

    It is no empty one: what it had may come back, so nothing may be concluded from its absence.
    """


def refuse(error: Exception, path: str, *, scheme: str, setting: str) -> NoReturn:
    """Raise the error of this project for one of a library's.

    `scheme` is empty for a path of this machine; `setting` names what the path comes from.
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
    if (any(kind.startswith(one) for one in _LOGINS) or _is_anonymous(error)) and not may_pass:
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
    """Return the library's words as one line without a full stop: a hint follows."""
    return printable(" ".join(str(error).split())[:_CHARACTERS_MAX].rstrip("."))
