"""The host's credentials: found once, refreshed beside the loop, and in each call's headers."""

import asyncio
import threading
from types import SimpleNamespace

import google.auth
import google.auth.exceptions
import grpc
import pytest

from tidegate.producer.spanner.authorization import Authorization
from tidegate.producer.spanner.call import CallError
from tidegate.schemas.errors import ConfigError


class Credentials:
    valid = False

    def __init__(self, error=None):
        self.error = error
        self.refreshed_on = []

    def before_request(self, _request, method, url, headers):
        assert (method, url) == ("POST", "https://spanner.example/")
        if not self.valid:
            self.refreshed_on.append(threading.current_thread())
            if self.error:
                raise self.error
            self.valid = True
        headers["Authorization"] = "Bearer token"


@pytest.fixture
def authorization():
    return Authorization("https://spanner.example/")


def use(monkeypatch, credentials):
    found = []
    monkeypatch.setattr(
        google.auth, "default", lambda scopes: found.append(scopes) or (credentials, "project")
    )
    return found


def test_a_token_is_refreshed_once_and_not_on_the_loops_thread(authorization, monkeypatch):
    credentials = Credentials()
    found = use(monkeypatch, credentials)

    async def ask():
        return await asyncio.gather(*[authorization.headers() for _ in range(5)])

    assert asyncio.run(ask()) == [[("authorization", "Bearer token")]] * 5
    assert len(found) == len(credentials.refreshed_on) == 1
    assert credentials.refreshed_on[0] is not threading.current_thread()


def test_a_rejected_token_is_renewed_once_in_a_while(authorization, monkeypatch):
    now_s, credentials = [100.0], Credentials()
    monkeypatch.setattr("tidegate.producer.spanner.authorization.time.monotonic", lambda: now_s[0])
    authorization.renew()  # nothing was used yet
    use(monkeypatch, credentials)
    asyncio.run(authorization.headers())
    for now_s[0], token in ((101.0, None), (102.0, "new"), (112.0, None)):
        credentials.token = "new"
        authorization.renew()
        assert credentials.token == token


def test_a_token_that_cannot_be_refreshed_may_be_later(authorization, monkeypatch):
    use(monkeypatch, Credentials(google.auth.exceptions.RefreshError("offline")))
    with pytest.raises(CallError, match="offline") as caught:
        asyncio.run(authorization.headers())
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_without_credentials_it_says_what_to_set(authorization, monkeypatch):
    def none_found(**_):
        raise google.auth.exceptions.DefaultCredentialsError("none")

    monkeypatch.setattr(google.auth, "default", none_found)
    with pytest.raises(ConfigError, match="credentials") as caught:
        asyncio.run(authorization.headers())
    assert "GOOGLE_APPLICATION_CREDENTIALS" in caught.value.hint


NO_CREDENTIALS = {
    "missing": None,
    "damaged": "no JSON",
    "empty": "{}",
    "nothing": "",
    "list": "[]",
    "text": '"key"',
    "number": "1",
    "null": "null",
    "list of keys": '[{"type": "service_account"}]',
    "type is a list": '{"type": ["service_account"]}',
    "fields are missing": '{"type": "service_account"}',
    "fields are numbers": '{"type": "service_account", "client_email": 1, "token_uri": 2, '
    '"private_key": 3}',
    "a user's": '{"type": "authorized_user", "client_id": []}',
    "of another host": '{"type": "external_account", "credential_source": 1}',
    "impersonated": '{"type": "impersonated_service_account", "source_credentials": 1}',
}


@pytest.mark.parametrize("text", NO_CREDENTIALS.values(), ids=NO_CREDENTIALS)
def test_a_file_without_credentials_is_named(tmp_path, text):
    file = tmp_path / "key.json"
    if text is not None:
        file.write_text(text)
    authorization = Authorization("https://spanner.example/", credentials_file=str(file))
    with pytest.raises(ConfigError, match="credentials_file") as caught:
        asyncio.run(authorization.headers())
    assert str(file) in str(caught.value)


def test_credentials_of_a_file_take_the_place_of_the_hosts(tmp_path, monkeypatch):
    monkeypatch.setattr(google.auth, "default", None)
    read = []
    monkeypatch.setattr(
        google.auth, "load_credentials_from_file",
        lambda file, scopes: read.append((file, scopes)) or (Credentials(), "project"),
    )  # fmt: skip
    authorization = Authorization("https://spanner.example/", credentials_file="key.json")
    assert asyncio.run(authorization.headers()) == [("authorization", "Bearer token")]
    assert read == [("key.json", ("https://www.googleapis.com/auth/spanner.data",))]


def test_unary_calls_use_the_same_credentials(authorization, monkeypatch):
    found = use(monkeypatch, SimpleNamespace(token="t"))
    assert isinstance(authorization.channel_credentials(), grpc.ChannelCredentials)
    authorization.channel_credentials()
    assert len(found) == 1
