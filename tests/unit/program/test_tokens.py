"""Logins by tokens: when they are fetched, what a source that fails does, Google's and AWS's."""

from __future__ import annotations

import base64
import json
import math
import sys
import threading
from contextlib import suppress
from datetime import UTC, datetime
from types import ModuleType, SimpleNamespace
from typing import ClassVar

import pytest
import structlog
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient
from pydantic_settings import SettingsConfigDict

from tests.fake_clouds import ACCESS_TOKEN, ACCOUNT, KEY_ID, SECRET_KEY, cloud, in_python
from tidegate.program.kafka_clients import admin_config, list_topics, make_client
from tidegate.program.kafka_errors import is_decisive, kafka_failure
from tidegate.program.registry_http import HttpSchemaRegistry
from tidegate.program.settings_stream import StreamSettings
from tidegate.program.tokens import (
    AwsTokens,
    FreshTokens,
    KafkaTokens,
    RegistryTokens,
    Token,
    google_kafka_form,
    kafka_tokens,
    own_function,
    registry_tokens,
)
from tidegate.schemas.errors import ConfigError, TidegateError, UnreachableError

SECRET = "hush-token"


class Source:
    """Returns token after token, each valid for 20 seconds; or raises `error`."""

    def __init__(self):
        self.now_s, self.calls, self.error = 1_000.0, 0, None

    def __call__(self):
        self.calls += 1
        if self.error is not None:
            raise self.error
        return Token(f"{SECRET}-{self.calls}", self.now_s + 20)

    def tokens(self, **changes):
        return FreshTokens(self, setting="kafka_login", now_s=lambda: self.now_s, **changes)


@pytest.fixture
def source():
    return Source()


def test_a_token_is_kept_for_half_of_its_time(source):
    tokens = source.tokens()
    assert source.calls == 0
    first = tokens.token()
    source.now_s += 9.9
    assert tokens.token() is first
    source.now_s += 0.2
    assert tokens.token().value == f"{SECRET}-2"
    assert SECRET not in repr(first)


@pytest.mark.parametrize("error", [OSError("it is down"), ConfigError("it is down")])
def test_a_source_that_fails_does_no_harm_while_the_token_is_valid(source, error):
    tokens = source.tokens()
    first = tokens.token()
    source.error = error
    source.now_s += 15
    with structlog.testing.capture_logs() as lines:
        assert tokens.token() is first
        source.now_s += 0.5
        assert tokens.token() is first  # not asked at each use
    assert source.calls == 2
    assert [line["valid_for_seconds"] for line in lines] == [5]
    source.now_s += 10
    with pytest.raises(TidegateError, match="is down"):
        tokens.token()
    source.error = None
    assert tokens.token().value == f"{SECRET}-4"


def test_no_thread_waits_for_the_next_token_while_one_is_valid(source):
    asked, answered = threading.Event(), threading.Event()
    tokens = source.tokens()
    first = tokens.token()

    def fetch():
        asked.set()
        answered.wait()
        return Token(f"{SECRET}-2", source.now_s + 20)

    tokens._fetch = fetch
    source.now_s += 15
    renewing = threading.Thread(target=tokens.token)
    renewing.start()
    asked.wait()
    assert tokens.token() is first
    # A client of Kafka, which asks because its token is nearly over, waits for a moment.
    assert KafkaTokens(tokens)("")[0] == first.value
    threading.Timer(0.1, answered.set).start()
    assert KafkaTokens(tokens)("")[0] == f"{SECRET}-2"
    renewing.join()
    assert tokens.token().value == f"{SECRET}-2"


def asking(tokens, fetch):
    """Start a thread that asks the source, which is now `fetch`; return it once it does so."""
    asked = threading.Event()

    def asked_for():
        asked.set()
        return fetch()

    tokens._fetch = asked_for
    thread = threading.Thread(target=lambda: suppressed(tokens))
    thread.start()
    asked.wait()
    return thread


def suppressed(tokens):
    with suppress(TidegateError):
        tokens.token()


def test_a_token_that_expires_while_a_client_waits_is_not_returned(source):
    tokens, answered, times = source.tokens(), threading.Event(), [1_012.0]
    tokens._now_s = lambda: times.pop(0) if len(times) > 1 else times[0]
    tokens._token = Token(SECRET, 1_020.0)

    def fetch():
        answered.wait()
        return Token(f"{SECRET}-2", 1_050.0)

    thread = asking(tokens, fetch)
    times.append(1_030.0)
    threading.Timer(0.1, answered.set).start()
    assert tokens.token(newer_within_s=0.01).value == f"{SECRET}-2"
    thread.join()


def test_clients_that_wait_for_one_call_do_not_each_make_one_of_their_own(source):
    """Each would wait for those of all before it, as long as the source may take for each."""
    tokens, answered, raised = source.tokens(), threading.Event(), []
    arrived, lock = threading.Semaphore(0), tokens._lock

    def acquire(**how):
        arrived.release()
        return lock.acquire(**how)

    def fetch():
        source.calls += 1
        answered.wait()
        raise UnreachableError("down")

    def waiting():
        with pytest.raises(UnreachableError, match="down") as caught:
            tokens.token()
        raised.append(caught.value)

    first = asking(tokens, fetch)
    tokens._lock = SimpleNamespace(acquire=acquire, release=lock.release)
    waiters = [threading.Thread(target=waiting) for _ in range(5)]
    for thread in waiters:
        thread.start()
    for _ in waiters:
        arrived.acquire()
    answered.set()
    for thread in (first, *waiters):
        thread.join()
    assert (source.calls, len(set(map(id, raised)))) == (1, 5)
    # The next use calls again.
    suppressed(tokens)
    assert source.calls == 2


def test_a_token_that_is_rejected_is_not_used_again(source):
    tokens = source.tokens()
    first = tokens.token()
    tokens.drop()
    assert tokens.token().value != first.value


def test_the_same_token_again_is_not_asked_for_without_end():
    now_s = [0.0]
    calls = []

    def fetch():  # a metadata server returns one token until shortly before its end
        calls.append(now_s[0])
        return Token(SECRET, 100.0)

    tokens = FreshTokens(fetch, setting="kafka_login", now_s=lambda: now_s[0])
    while now_s[0] < 99.9:
        tokens.token()
        now_s[0] += 0.05
    assert len(calls) < 12


@pytest.mark.parametrize("error", [ConfigError("not installed"), UnreachableError("down")])
def test_an_error_of_ours_passes_as_it_is(source, error):
    source.error = error
    with pytest.raises(type(error)) as caught:
        source.tokens().token()
    assert caught.value is error


def test_a_token_that_has_expired_already_is_no_token(source):
    source.now_s = 0
    tokens = FreshTokens(source, setting="registry_login", now_s=lambda: 50)
    with pytest.raises(UnreachableError, match=r"registry_login: no token: .* has expired"):
        tokens.token()


def test_a_source_that_never_answers_is_given_up():
    stopped = threading.Event()
    tokens = FreshTokens(stopped.wait, setting="kafka_login", within_s=0.05)
    with pytest.raises(UnreachableError, match=r"has not answered in 0\.05 s"):
        tokens.token()
    stopped.set()


def test_a_source_that_hangs_is_called_more_and_more_rarely():
    """Each call that hangs keeps a thread."""
    stopped, calls, clock_s = threading.Event(), [], [0.0]

    def fetch():
        calls.append(clock_s[0])
        stopped.wait()
        return Token(SECRET, 2e9)

    tokens = FreshTokens(
        fetch, setting="kafka_login", within_s=0.01, now_s=lambda: 1e9, clock_s=lambda: clock_s[0]
    )
    for _ in range(200):
        with pytest.raises(UnreachableError, match="has not answered in"):
            tokens.token()
        clock_s[0] += 0.01
    assert 10 < len(calls) < 25
    # With a token that is still valid it is not asked at each use either.
    tokens._token = Token(SECRET, 2e9)
    for _ in range(20):
        tokens.token()
    assert len(calls) < 27
    # Once the calls have ended, nothing is waited for.
    tokens._token = None
    hanging = list(tokens._hanging)
    stopped.set()
    for thread in hanging:
        thread.join()
    assert tokens.token().value == SECRET


# ---------------------------------------------------------------- a program's own function
@pytest.fixture
def function(monkeypatch):
    """A module with one function, which returns `answer` or raises it."""
    module = ModuleType("own_tokens")
    module.answer = (SECRET, 2e9)

    def fetch():
        if isinstance(module.answer, BaseException):
            raise module.answer
        return module.answer

    module.fetch = fetch
    monkeypatch.setitem(sys.modules, "own_tokens", module)
    return module


@pytest.mark.parametrize(
    ("answer", "token"),
    [
        ((SECRET, 2e9), Token(SECRET, 2e9)),
        ((SECRET, 2_000_000_000), Token(SECRET, 2e9)),
        ((SECRET, datetime(2033, 5, 18, 3, 33, 20, tzinfo=UTC)), Token(SECRET, 2e9)),
        ((SECRET, 2e9, "me"), Token(SECRET, 2e9, "me")),
    ],
)
def test_a_function_returns_a_token_and_its_time_of_expiry(function, answer, token):
    function.answer = answer
    assert own_function("own_tokens:fetch", setting="kafka_login")() == token


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (None, ConfigError, "own_tokens:fetch returned no token"),
        (SECRET, ConfigError, "returned no token"),
        (("", 2e9), ConfigError, "returned no token"),
        ((f"{SECRET}\n", 2e9), ConfigError, "returned no token"),
        ((SECRET,), ConfigError, "no time of expiry"),
        ((SECRET, "tomorrow"), ConfigError, "no time of expiry"),
        # librdkafka takes neither; NaN is never over, and infinity is never renewed.
        ((SECRET, math.inf), ConfigError, "no time of expiry"),
        ((SECRET, math.nan), ConfigError, "no time of expiry"),
        # Other units would be valid for thousands of years: no client would ever renew the token.
        ((SECRET, 2e12), ConfigError, "2e.12, which is not in Unix seconds"),
        ((SECRET, 2_000_000_000_000), ConfigError, "is not in Unix seconds"),
        ((SECRET, 10**400), ConfigError, "is not in Unix seconds"),
        ((SECRET, datetime(2033, 5, 18)), ConfigError, "no time of expiry"),  # noqa: DTZ001 - its fault
        (OSError(SECRET), UnreachableError, "own_tokens:fetch raised OSError"),
        (SystemExit(SECRET), UnreachableError, "own_tokens:fetch raised SystemExit"),
    ],
)
def test_what_a_function_does_wrong_is_named_without_its_secrets(function, answer, kind, text):
    function.answer = answer
    tokens = FreshTokens(own_function("own_tokens:fetch", setting="kafka_login"), setting="x")
    with pytest.raises(kind, match=text) as caught:
        tokens.token()
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("name", ["no_such_module:fetch", "json:no_such_function"])
def test_a_function_that_is_not_there_is_named(name):
    with pytest.raises(ConfigError, match=f"{name} cannot be imported.* PYTHONPATH"):
        own_function(name, setting="registry_login")()


# ---------------------------------------------------------------- settings
class Reader(StreamSettings):
    model_config = SettingsConfigDict(env_prefix="TEST_TOKENS_")
    help_command: ClassVar[str] = "reader --help"
    owned_kafka_options: ClassVar[frozenset[str]] = frozenset()


def load(**changes):
    needed = {"bootstrap_servers": "b:1", "registry_url": "http://r", "prefix": "bank"}
    return Reader.load(None, **{**needed, **changes})


def test_a_login_is_given_to_every_kafka_client():
    assert load().kafka_client_options() == load(kafka_login="none").kafka_client_options() == {}
    options = load(kafka_login="google", kafka_options={"linger.ms": "7"}).kafka_client_options()
    tokens = options.pop("oauth_cb")
    assert options == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "linger.ms": "7",
    }
    # One source for all clients of a process.
    assert load(kafka_login="google").kafka_client_options()["oauth_cb"] is tokens
    plain = load(kafka_login="aws", kafka_options={"security.protocol": "sasl_plaintext"})
    assert plain.kafka_client_options()["security.protocol"] == "sasl_plaintext"
    assert plain.given_kafka_options() == {"security.protocol": "sasl_plaintext"}


def test_a_login_is_given_to_the_registrys_client():
    fields = {"bearer.auth.logical.cluster": "lsrc-1", "timeout": "5"}
    options = load(registry_login="own:f", registry_options=fields).registry_client_options()
    assert options == {
        "timeout": "5",
        "bearer.auth.credentials.source": "CUSTOM",
        "bearer.auth.custom.provider.function": registry_tokens("own:f"),
        "bearer.auth.custom.provider.config": {"bearer.auth.logical.cluster": "lsrc-1"},
    }
    HttpSchemaRegistry("http://r", options=options)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"kafka_login": "gcp"}, 'kafka_login: must be "none", "google", "aws" or a function'),
        ({"kafka_login": ""}, "kafka_login: must be"),
        ({"kafka_login": "own.f"}, "kafka_login: must be"),
        ({"registry_login": "aws"}, "registry_login: AWS's registry, Glue, does not have"),
        ({"registry_login": "gcp"}, 'registry_login: must be "none", "google" or a function'),
        (
            {"kafka_login": "aws", "kafka_options": {"sasl.password": SECRET, "linger.ms": "1"}},
            "kafka_login: sasl.password in kafka_options is another login",
        ),
        (
            {"kafka_login": "own:f", "kafka_options": {"sasl.mechanisms": "PLAIN"}},
            "sasl.mechanisms in kafka_options is another login",
        ),
        (
            {"kafka_login": "google", "kafka_options": {"security.protocol": "ssl"}},
            "has to be SASL_SSL or SASL_PLAINTEXT",
        ),
        (
            {"registry_login": "google", "registry_user_info": f"me:{SECRET}"},
            "registry_login: registry_user_info is another login",
        ),
        (
            {"registry_login": "google", "registry_options": {"bearer.auth.token": SECRET}},
            "registry_login: bearer.auth.token is another login",
        ),
    ],
)
def test_a_login_that_does_not_fit_is_named(changes, text):
    with pytest.raises(ConfigError) as caught:
        load(**changes)
    assert text in str(caught.value)
    assert SECRET not in str(caught.value)


# ---------------------------------------------------------------- clients
def test_a_kafka_client_without_a_token_says_so_at_once(source):
    source.error = OSError("metadata server is down")
    options = {"sasl.mechanism": "OAUTHBEARER", "security.protocol": "sasl_plaintext"}
    config = admin_config("127.0.0.1:1", {**options, "oauth_cb": KafkaTokens(source.tokens())})
    with pytest.raises(UnreachableError, match="kafka_login: no token: OSError"):
        make_client(AdminClient, config)
    with pytest.raises(UnreachableError, match="kafka_login: no token"):
        list_topics("127.0.0.1:1", config)


def test_a_kafka_client_is_made_with_the_token_and_asks_for_the_next(source):
    tokens = KafkaTokens(FreshTokens(Source(), setting="x", now_s=lambda: 1_000.0))
    assert tokens("") == (f"{SECRET}-1", 1_020.0, "", {})
    tokens = KafkaTokens(source.tokens())
    source.error = OSError("down")
    with structlog.testing.capture_logs() as lines, pytest.raises(UnreachableError):
        tokens("")
    assert [line["event"] for line in lines] == ["no token for Kafka"]


def test_a_token_endpoint_that_fails_is_no_rejected_login():
    text = "Failed to acquire SASL OAUTHBEARER token: Failed to retrieve OIDC token"
    error = KafkaError(KafkaError._AUTHENTICATION, text)
    assert is_decisive(error)
    failure = kafka_failure(error, attempt="cannot do it")
    assert isinstance(failure, UnreachableError)
    assert "no token for the login to Kafka" in str(failure)


def test_a_registry_gets_the_token_of_now_and_another_one_after_a_rejection(source, monkeypatch):
    tokens = RegistryTokens(source.tokens())
    fields = tokens({"bearer.auth.identity.pool.id": "pool-1"})
    assert fields == {
        "bearer.auth.logical.cluster": "",
        "bearer.auth.identity.pool.id": "pool-1",
        "bearer.auth.token": f"{SECRET}-1",
    }
    source.error = OSError("down")
    source.now_s += 30
    options = {
        "bearer.auth.credentials.source": "CUSTOM",
        "bearer.auth.custom.provider.function": tokens,
        "bearer.auth.custom.provider.config": {},
    }
    registry = HttpSchemaRegistry("http://127.0.0.1:1", options=options)
    for call in (registry.require_reachable, registry.subject_names, lambda: registry.schema(1)):
        with pytest.raises(UnreachableError, match="no token: OSError"):
            call()


# ---------------------------------------------------------------- Google
PRINT = """
from tidegate.program.tokens import {name} as tokens
import json
kafka = tokens("google"{more})
token = kafka._tokens.token()
print(json.dumps([token.value, token.expires_at_s, token.principal]))
"""


def decoded(part):
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def test_googles_default_credentials_give_a_token():
    pytest.importorskip("google.auth")
    with cloud(seconds=20) as server:
        code = PRINT.format(name="registry_tokens", more="")
        value, expires_at_s, principal = json.loads(in_python(code, server.google))
    assert value.startswith(ACCESS_TOKEN)
    assert 0 < expires_at_s - datetime.now(UTC).timestamp() <= 20
    # As it is in a claim for Kafka: a client with a later time would use it for too long.
    assert expires_at_s == int(expires_at_s)
    assert principal == ACCOUNT


def test_googles_kafka_takes_the_token_in_a_form_of_its_own(monkeypatch):
    monkeypatch.setattr("tidegate.program.tokens.time.time", lambda: 1_000.5)
    header, claims, token = google_kafka_form(Token(ACCESS_TOKEN, 4_600.9, ACCOUNT)).split(".")
    assert json.loads(decoded(header)) == {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
    assert json.loads(decoded(claims)) == {
        "exp": 4_600, "iat": 1_000, "iss": "Google", "scope": "kafka", "sub": ACCOUNT,
    }  # fmt: skip
    assert decoded(token).decode() == ACCESS_TOKEN
    assert kafka_tokens("google", "b:1")._form is google_kafka_form


# ---------------------------------------------------------------- AWS
def test_awss_default_credentials_sign_a_request(monkeypatch, tmp_path):
    pytest.importorskip("aws_msk_iam_sasl_signer", reason="the extra aws is not installed")
    file = tmp_path / "token"
    file.write_text("of-the-pod")
    with cloud(seconds=3_600) as server:
        for variables in (server.aws, server.sts(file)):
            with pytest.MonkeyPatch.context() as patch:
                for name, value in variables.items():
                    patch.setenv(name, value)
                token = AwsTokens("broker:9098")()
            url = decoded(token.value).decode()
            assert url.startswith("https://kafka.eu-north-1.amazonaws.com/?")
            assert KEY_ID in url
            assert SECRET_KEY not in url
            assert 890 < token.expires_at_s - datetime.now(UTC).timestamp() <= 900
        assert server.issued == 2


def test_no_credentials_of_aws_are_named(monkeypatch):
    pytest.importorskip("aws_msk_iam_sasl_signer", reason="the extra aws is not installed")
    with cloud() as server:
        server.is_down = True
        for name, value in {**server.aws, "AWS_METADATA_SERVICE_NUM_ATTEMPTS": "1"}.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(UnreachableError, match="no credentials of AWS"):
            AwsTokens("b:1")()


@pytest.mark.parametrize(
    ("servers", "region"),
    [
        ("boot-abc.c2.kafka-serverless.us-east-1.amazonaws.com:9098", "us-east-1"),
        ("b-1.x.c3.kafka.eu-west-1.amazonaws.com:9098,b-2.x.c3.kafka.eu-west-1.a:1", "eu-west-1"),
        ("b-1.x.c3.kafka.cn-north-1.amazonaws.com.cn:9098", "cn-north-1"),
        ("kafka.bank.internal:9098", "eu-north-1"),
    ],
)
def test_the_region_is_that_of_the_brokers_or_of_the_environment(servers, region, monkeypatch):
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    assert AwsTokens(servers)._region() == region


def test_a_missing_region_is_named(monkeypatch):
    monkeypatch.delenv("AWS_REGION", raising=False)
    tokens = AwsTokens("kafka.bank.internal:9098")
    tokens._session = SimpleNamespace(get_config_variable=lambda _: None)
    with pytest.raises(ConfigError, match=r"no region of AWS.* AWS_REGION"):
        tokens._region()


@pytest.mark.parametrize(("login", "extra"), [("google", "google"), ("aws", "aws")])
def test_a_library_that_is_missing_is_named_with_its_extra(login, extra, monkeypatch):
    monkeypatch.setattr("tidegate.program.extras.is_installed", lambda _: False)
    tokens = kafka_tokens(login, "b:2")
    with pytest.raises(ConfigError, match=rf'pip install "tidegate\[{extra}\]"'):
        tokens.prepare()
