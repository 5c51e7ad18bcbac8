"""Each error of a library is one of this project, with the setting and what to do."""

import pytest

from tidegate.producer.datastream.store_errors import LocationGone, PathMissing, refuse
from tidegate.schemas.errors import ConfigError, UnreachableError

NoCredentialsError = type("NoCredentialsError", (Exception,), {})
RefreshError = type("RefreshError", (Exception,), {})
HttpError = type("HttpError", (Exception,), {"code": 401})


@pytest.mark.parametrize(
    ("error", "scheme", "kind", "text"),
    [
        (FileNotFoundError("x"), "s3", PathMissing, "set: s3://b/p does not exist. Check"),
        (NotADirectoryError("x"), "", PathMissing, "does not exist"),
        (PermissionError("no\nright."), "s3", ConfigError, "may not be read: no right. Grant.*s3:"),
        (OSError("Forbidden: b/o\nno right"), "gs", ConfigError, "Grant.*objectViewer"),
        (PermissionError("no"), "", ConfigError, "Grant this principal read access"),
        (OSError("Forbidding"), "gs", UnreachableError, "OSError: Forbidding. Run it again"),
        (NoCredentialsError("x"), "s3", ConfigError, "no credentials.*AWS_ACCESS_KEY_ID"),
        (HttpError("anonymous"), "gs", ConfigError, "no credentials.*GOOGLE_APPLICATION"),
        (RefreshError("invalid_grant: revoked"), "gs", ConfigError, "no credentials"),
        (RefreshError("Reauthentication is needed"), "gs", ConfigError, "no credentials"),
        (RefreshError("Unable to acquire: 503", "<html>"), "gs", UnreachableError, "RefreshError"),
        (RefreshError("429: slow down"), "gs", UnreachableError, "429: slow down. Run it again"),
        (ValueError("it is requester pays"), "gs", ConfigError, "requesters pay"),
        (ValueError("\0"), "", ConfigError, "is not a path"),
        (ValueError("x"), "gs", UnreachableError, "ValueError: x"),
        (TimeoutError("y" * 10_000), "s3", UnreachableError, "TimeoutError: y{300}. Run"),
    ],
)
def test_it_says_what_and_what_to_do(error, scheme, kind, text):
    with pytest.raises(kind, match=text) as raised:
        refuse(error, "s3://b/p", scheme=scheme, setting="set")
    assert type(raised.value) is kind
    assert raised.value.__cause__ is error


def test_only_what_may_pass_by_itself_is_tried_again():
    assert LocationGone("x").retriable
    assert not PathMissing("x").retriable
