"""Tokens that expire: cached while they are valid, and renewed before they expire.

A source that fails does no harm while the last token is valid.  After that each use raises an error
that says so; no call waits longer than one call of the source.

A source is Google's or AWS's credentials, or a function of the user, which takes no arguments and
returns a token or raises.  The libraries are optional, and are loaded for the first token.
"""

from __future__ import annotations

import base64
import importlib
import json
import math
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any

import structlog

from tidegate.program.calls import CallHangs, call_bounded
from tidegate.program.extras import Extra
from tidegate.schemas.errors import ConfigError, TidegateError, UnreachableError

_WITHIN_S = 20.0
_RENEWED_AT = 0.5
"""The share of a token's remaining time after which the source is called again.

Below 0.8, at which librdkafka and Java's client renew: a client that asks then gets a newer token.
"""
_PAUSE_S = 1.0
"""The pause between two calls of a source that failed or returned the same token again."""
_SECONDS_MAX = 1e11
"""The year 5138; times in milliseconds have passed it since 1973."""
_NEWER_WITHIN_S = 1.0
"""How long a client of Kafka waits for a newer token.

It asks after four fifths of its token's time.  The same token would be valid for the last fifth
only, and a broker whose clock is ahead would reject it even earlier.
"""


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token, the time at which it expires in Unix seconds, and its principal."""

    value: str = field(repr=False)
    expires_at_s: float
    principal: str = ""


class FreshTokens:
    """The current token of one source, for all clients of a process; thread-safe.

    A call that hangs keeps its thread.  With n of them the next call is n - 1 times `within_s`
    after the last one, so a source that hangs for a day has kept about a hundred.
    """

    def __init__(
        self,
        fetch: Callable[[], Token],
        *,
        setting: str,
        within_s: float = _WITHIN_S,
        now_s: Callable[[], float] = time.time,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start without a token; `setting` begins error texts.

        `now_s` is the wall clock, `clock_s` is monotonic.
        """
        self._fetch = fetch
        self._setting = setting
        self._within_s = within_s
        self._now_s = now_s
        self._clock_s = clock_s
        self._hanging: list[threading.Thread] = []
        """The calls that have not returned."""
        self._next_call_s = 0.0
        """When the source may be called again, while calls hang."""
        self._lock = threading.Lock()
        self._token: Token | None = None
        self._renew_at_s = float("-inf")
        self._failures = 0
        self._last_failure: TidegateError | None = None

    def token(self, *, newer_within_s: float = 0.0) -> Token:
        """Return a valid token; may call the source, and then blocks until the call has ended.

        While another thread asks for the next token, the current one is returned after
        `newer_within_s`; without a valid one, the other thread's failure is raised here too.
        Raises UnreachableError if there is no token, and ConfigError for a source that cannot work.
        """
        failures = self._failures
        if self._valid() is None or not self._lock.acquire(timeout=newer_within_s):
            if (token := self._valid()) is not None:
                return token
            self._lock.acquire()
        try:
            return self._current(failures)
        finally:
            self._lock.release()

    def drop(self) -> None:
        """Discard the current token, because it was rejected; the next use calls the source."""
        with self._lock:
            self._renew_at_s = float("-inf")
            self._token = None

    def _valid(self) -> Token | None:
        """Return the current token unless it has expired."""
        token = self._token
        return None if token is None or self._now_s() >= token.expires_at_s else token

    def _current(self, failures: int) -> Token:
        """Return the current token or a new one; the caller holds the lock.

        `failures` is their number before the caller waited for the lock.
        """
        if self._token is not None and self._now_s() < self._renew_at_s:
            return self._token
        if self._last_failure is not None and failures != self._failures:
            # Else each of the callers that waited would wait for a call of its own, in turn.
            raise copy(self._last_failure)
        try:
            fresh = self._fetched()
        except TidegateError as error:
            now_s = self._now_s()
            if self._token is None or now_s >= self._token.expires_at_s:
                # Without its traceback, which would keep alive what the callers hold.
                self._failures, self._last_failure = self._failures + 1, copy(error)
                raise
            pause_s = max(_PAUSE_S, self._next_call_s - self._clock_s() if self._hanging else 0.0)
            self._renew_at_s = min(now_s + pause_s, self._token.expires_at_s)
            valid_for_s = round(self._token.expires_at_s - now_s)
            structlog.get_logger().warning(
                "token not renewed", error=str(error), valid_for_seconds=valid_for_s
            )
            return self._token
        now_s = self._now_s()
        left_s = fresh.expires_at_s - now_s
        self._renew_at_s = now_s + max(left_s * _RENEWED_AT, min(left_s, _PAUSE_S))
        self._token = fresh
        return fresh

    def _fetched(self) -> Token:
        tokens: list[Token] = []
        self._hanging = [thread for thread in self._hanging if thread.is_alive()]
        if self._hanging and self._clock_s() < self._next_call_s:
            raise self._hangs()
        try:
            call_bounded(lambda: tokens.append(self._fetch()), within_s=self._within_s)
        except CallHangs as call:
            self._next_call_s = self._clock_s() + len(self._hanging) * self._within_s
            self._hanging.append(call.thread)
            raise self._hangs() from None
        except TidegateError:
            raise
        except Exception as error:
            raise self._failure(f"{type(error).__name__}: {error}") from error
        if tokens[0].expires_at_s <= self._now_s():
            raise self._failure("the source returned a token that has expired")
        return tokens[0]

    def _hangs(self) -> UnreachableError:
        reason, calls = f"the source has not answered in {self._within_s:g} s", len(self._hanging)
        return self._failure(reason if calls == 1 else f"{reason}, {calls} times")

    def _failure(self, reason: str) -> UnreachableError:
        hint = "It is tried again: check the credentials, and what issues the tokens"
        return UnreachableError(f"{self._setting}: no token: {reason}", hint=hint)


class KafkaTokens:
    """The `oauth_cb` of librdkafka; called in a thread of the client."""

    def __init__(
        self, tokens: FreshTokens, form: Callable[[Token], str] = lambda token: token.value
    ) -> None:
        """`form` writes a token as the service expects it."""
        self._tokens = tokens
        self._form = form

    def prepare(self) -> None:
        """Fetch a token before a client is made, which would wait ten seconds without an error.

        Raises the errors of `FreshTokens.token`.
        """
        self._tokens.token()

    def __call__(self, _config: str) -> tuple[str, float, str, dict[str, str]]:
        """Return token, time of expiry in Unix seconds, principal and extensions."""
        try:
            token = self._tokens.token(newer_within_s=_NEWER_WITHIN_S)
        except TidegateError as error:
            # The client reports only that there was an error.
            structlog.get_logger().warning("no token for Kafka", error=str(error))
            raise
        return self._form(token), token.expires_at_s, token.principal, {}


class RegistryTokens:
    """A function for the registry client's `bearer.auth.custom.provider.function`."""

    def __init__(self, tokens: FreshTokens) -> None:
        """Start without a token."""
        self._tokens = tokens

    def drop(self) -> None:
        """Discard the current token, because the registry rejected it."""
        self._tokens.drop()

    def __call__(self, fields: Mapping[str, str]) -> dict[str, str]:
        """Return the bearer fields of a call; raises the errors of `FreshTokens.token`."""
        return {
            "bearer.auth.logical.cluster": "",
            **fields,
            "bearer.auth.token": self._tokens.token().value,
        }


NO_LOGIN = "none"
GOOGLE = "google"
AWS = "aws"

_FUNCTION = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_GOOGLE_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_GOOGLE_HEADER = {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
_ANSWER_S = 10.0
_AWS_BROKER = re.compile(
    r"\.kafka(?:-serverless)?\.([a-z]{2}[a-z0-9-]*)\.amazonaws\.com(?:\.cn)?(?=[:,]|$)"
)
_RETURNS = "It has to return (token, time of expiry in Unix seconds or as an aware datetime)"


def is_function(login: str) -> bool:
    """Whether a login names a function of the user, as `module:function`."""
    return _FUNCTION.fullmatch(login) is not None


def require_login(login: str, *, registry: bool = False) -> str:
    """Return the login; raises ValueError for an unknown one."""
    if login == AWS and registry:
        raise ValueError(
            "AWS's registry, Glue, does not have Confluent's API; a registry of another kind takes "
            'no token of AWS: "google", "<module>:<function>" or "none"'
        )
    if login not in (NO_LOGIN, GOOGLE, AWS) and not is_function(login):
        logins = '"none", "google"' if registry else '"none", "google", "aws"'
        raise ValueError(f'must be {logins} or a function, as "<module>:<function>"')
    return login


@cache
def kafka_tokens(login: str, bootstrap_servers: str) -> KafkaTokens:
    """Return the source of Kafka's tokens that all clients of a process share."""
    tokens = partial(FreshTokens, setting="kafka_login")
    if login == GOOGLE:
        return KafkaTokens(tokens(GoogleTokens("kafka_login")), google_kafka_form)
    if login == AWS:
        return KafkaTokens(tokens(AwsTokens(bootstrap_servers)))
    return KafkaTokens(tokens(own_function(login, setting="kafka_login")))


@cache
def registry_tokens(login: str) -> RegistryTokens:
    """Return the source of the registry's tokens that all clients of a process share."""
    setting = "registry_login"
    is_google = login == GOOGLE
    source = GoogleTokens(setting) if is_google else own_function(login, setting=setting)
    return RegistryTokens(FreshTokens(source, setting=setting))


class GoogleTokens:
    """Access tokens of Google's default credentials: a key file, or the host's service account."""

    def __init__(self, setting: str) -> None:
        """Start without credentials; `setting` begins the texts of errors."""
        self._setting = setting
        self._credentials: Any = None

    def __call__(self) -> Token:
        """Fetch a token; blocks for at most some seconds."""
        Extra("google", ("google.auth", "requests")).require()
        from google.auth import default  # noqa: PLC0415 - optional
        from google.auth.transport.requests import Request  # noqa: PLC0415 - optional

        bounded: Any = partial(Request(), timeout=_ANSWER_S)
        if self._credentials is None:
            self._credentials, _ = default(scopes=[_GOOGLE_SCOPE], request=bounded)
        credentials = self._credentials
        credentials.refresh(bounded)
        # Users have an account; service accounts, also impersonated ones, an address.
        address = getattr(credentials, "service_account_email", None)
        principal = address or getattr(credentials, "account", None)
        if credentials.expiry is None:
            raise ConfigError(
                (
                    f"{self._setting}: {type(credentials).__name__} has tokens without a time of "
                    "expiry"
                ),
                hint="Use the credentials of a service account",
            )
        # A claim of it has whole seconds; the client may not believe in a later time.
        expires_at_s = math.floor(credentials.expiry.replace(tzinfo=UTC).timestamp())
        return Token(credentials.token, expires_at_s, principal or "")


def google_kafka_form(token: Token) -> str:
    """Return an access token in the form that Google's managed Kafka expects.

    Three parts, like a JWT: a header of Google's, the claims, and the token in place of a
    signature.
    """
    claims = {
        "exp": math.floor(token.expires_at_s),
        "iat": int(time.time()),
        "iss": "Google",
        "scope": "kafka",
        "sub": token.principal,
    }
    parts = (json.dumps(_GOOGLE_HEADER), json.dumps(claims), token.value)
    return ".".join(base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts)


class AwsTokens:
    """Signed requests to MSK, by AWS's default credentials."""

    def __init__(self, bootstrap_servers: str) -> None:
        """Start without credentials; the names of MSK's brokers contain their region."""
        self._bootstrap_servers = bootstrap_servers
        self._session: Any = None

    def __call__(self) -> Token:
        """Sign a request; may block for some seconds while the host's role is looked up."""
        Extra("aws", ("aws_msk_iam_sasl_signer", "botocore")).require()
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider  # noqa: PLC0415 - optional
        from botocore.credentials import CredentialProvider  # noqa: PLC0415 - optional
        from botocore.session import Session  # noqa: PLC0415 - optional

        if self._session is None:
            self._session = Session()
        credentials = self._session.get_credentials()
        if credentials is None:
            hint = "Set them as any AWS client has them: a role of the host, a profile, variables"
            raise UnreachableError("kafka_login: no token: no credentials of AWS", hint=hint)

        class SessionCredentials(CredentialProvider):  # type: ignore[misc, unused-ignore]  # botocore has no types, and may be absent
            """The credentials of the session, which renews them itself."""

            def load(self) -> Any:
                return credentials

        value, expires_at_ms = MSKAuthTokenProvider.generate_auth_token_from_credentials_provider(
            self._region(), SessionCredentials()
        )
        return Token(value, expires_at_ms / 1_000)

    def _region(self) -> str:
        named = _AWS_BROKER.search(self._bootstrap_servers)
        region = named[1] if named else os.environ.get("AWS_REGION")
        region = region or self._session.get_config_variable("region")
        if not region:
            raise ConfigError("kafka_login: no region of AWS", hint="Set the variable AWS_REGION")
        return str(region)


def own_function(login: str, *, setting: str) -> Callable[[], Token]:
    """Return a token source that calls a function of the user.

    The text of its errors is left out, because it may hold a secret.
    """

    def fetch() -> Token:
        module, _, name = login.partition(":")
        try:
            function = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            hint = "Check the name, and that the module is on PYTHONPATH"
            message = f"{setting}: {login} cannot be imported"
            raise ConfigError(message, hint=hint, cause=str(error)) from error
        try:
            answer = function()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the function is the program's
            hint = "It is tried again: look at what the function does"
            message = f"{setting}: no token: {login} raised {type(error).__name__}"
            raise UnreachableError(message, hint=hint) from None
        return _token(answer, login, setting)

    return fetch


def _token(answer: object, login: str, setting: str) -> Token:
    match answer:
        case (str(value), *rest) if value and value.isascii() and not re.search(r"\s", value):
            pass
        case _:
            raise ConfigError(f"{setting}: {login} returned no token", hint=_RETURNS)
    match rest:
        case [int() | float() as number, *_] if number >= _SECONDS_MAX and number != math.inf:
            least = float(min(number, 1e300))
            message = f"{setting}: {login} returned {least:g}, which is not in Unix seconds"
            raise ConfigError(message, hint=_RETURNS)
        case [datetime(tzinfo=zone) as expires_at, *more] if zone is not None:
            expires_at_s = expires_at.timestamp()
        case [int() | float() as seconds, *more] if math.isfinite(seconds):
            expires_at_s = float(seconds)
        case _:
            raise ConfigError(f"{setting}: {login} returned no time of expiry", hint=_RETURNS)
    principal = more[0] if more else ""
    return Token(value, expires_at_s, principal if isinstance(principal, str) else "")
