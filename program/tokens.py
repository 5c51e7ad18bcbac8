"""Tokens that expire: kept while they are valid, and renewed before they expire.

A source that fails does no harm while the last token is valid.  After that each use raises an error
that says so; nothing waits longer than one call of the source may take.

A source is Google's or AWS's credentials, or a function of the program.  It takes no arguments and
returns a token, or raises.  The libraries are optional, and loaded for the first token.
"""

from __future__ import annotations

import base64
import importlib
import json
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
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
"""The share of a token's remaining time after which the source is called again.  Below the 0.8 at
which librdkafka and Java's client do: a client that asks then gets a newer one."""
_PAUSE_S = 1.0
"""Between two calls of a source that failed or returned the same token again."""


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token, the time at which it expires in Unix seconds, and whose it is."""

    value: str = field(repr=False)
    expires_at_s: float
    principal: str = ""


class FreshTokens:
    """The current token of one source, for all clients of a process; thread-safe."""

    def __init__(
        self,
        fetch: Callable[[], Token],
        *,
        setting: str,
        within_s: float = _WITHIN_S,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        """Fetch nothing yet; `setting` begins the texts of errors, `now_s` is the wall clock."""
        self._fetch = fetch
        self._setting = setting
        self._within_s = within_s
        self._now_s = now_s
        self._lock = threading.Lock()
        self._kept: Token | None = None
        self._renew_at_s = float("-inf")

    def token(self) -> Token:
        """Return a token that is valid; may call the source, and blocks until that has ended.

        Raises UnreachableError if there is none, and ConfigError for a source that cannot work.
        """
        kept = self._kept
        is_valid = kept is not None and self._now_s() < kept.expires_at_s
        if not self._lock.acquire(blocking=not is_valid):
            if kept is not None:
                return kept  # another thread is asking for the next one
            self._lock.acquire()
        try:
            return self._current()
        finally:
            self._lock.release()

    def drop(self) -> None:
        """Call the source for the next token: the present one was rejected."""
        with self._lock:
            self._renew_at_s = float("-inf")
            self._kept = None

    def _current(self) -> Token:
        """Return the token that is kept, or the next one; for the thread that holds the lock."""
        if self._kept is not None and self._now_s() < self._renew_at_s:
            return self._kept
        try:
            fresh = self._fetched()
        except TidegateError as error:
            now_s = self._now_s()
            if self._kept is None or now_s >= self._kept.expires_at_s:
                raise
            self._renew_at_s = min(now_s + _PAUSE_S, self._kept.expires_at_s)
            valid_for_s = round(self._kept.expires_at_s - now_s)
            structlog.get_logger().warning(
                "token not renewed", error=str(error), valid_for_seconds=valid_for_s
            )
            return self._kept
        now_s = self._now_s()
        left_s = fresh.expires_at_s - now_s
        self._renew_at_s = now_s + max(left_s * _RENEWED_AT, min(left_s, _PAUSE_S))
        self._kept = fresh
        return fresh

    def _fetched(self) -> Token:
        found: list[Token] = []
        try:
            call_bounded(lambda: found.append(self._fetch()), within_s=self._within_s)
        except CallHangs:
            raise self._failure(f"the source has not answered in {self._within_s:g} s") from None
        except TidegateError:
            raise
        except Exception as error:
            raise self._failure(f"{type(error).__name__}: {error}") from error
        if found[0].expires_at_s <= self._now_s():
            raise self._failure("the source returned a token that has expired")
        return found[0]

    def _failure(self, reason: str) -> UnreachableError:
        hint = "It is tried again: check the credentials, and what issues the tokens"
        return UnreachableError(f"{self._setting}: no token: {reason}", hint=hint)


class KafkaTokens:
    """librdkafka's `oauth_cb`; called in a thread of the client."""

    def __init__(
        self, tokens: FreshTokens, form: Callable[[Token], str] = lambda token: token.value
    ) -> None:
        """`form` writes a token as the service expects it."""
        self._tokens = tokens
        self._form = form

    def prepare(self) -> None:
        """Have a token before a client is made: it would wait ten seconds for one without a word.

        Raises what `FreshTokens.token` raises.
        """
        self._tokens.token()

    def __call__(self, _config: str) -> tuple[str, float, str, dict[str, str]]:
        """Return token, time of expiry in Unix seconds, principal and extensions."""
        try:
            token = self._tokens.token()
        except TidegateError as error:
            # The client reports that there was an error, and not which.
            structlog.get_logger().warning("no token for Kafka", error=str(error))
            raise
        return self._form(token), token.expires_at_s, token.principal, {}


class RegistryTokens:
    """Function of the registry client's `bearer.auth.custom.provider.function`."""

    def __init__(self, tokens: FreshTokens) -> None:
        """Fetch nothing yet."""
        self._tokens = tokens

    def drop(self) -> None:
        """Send another token with the next call: the registry rejected this one."""
        self._tokens.drop()

    def __call__(self, fields: Mapping[str, str]) -> dict[str, str]:
        """Return the bearer fields of a call; raises what `FreshTokens.token` raises."""
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
    """Whether a login names a function of the program, as `module:function`."""
    return _FUNCTION.fullmatch(login) is not None


def require_login(login: str, *, registry: bool = False) -> str:
    """Return the login; raises ValueError for one that is not known."""
    if login == AWS and registry:
        raise ValueError(
            "AWS's registry, Glue, does not have Confluent's API; a registry of another kind takes "
            'no token of AWS: "google", "<module>:<function>" or "none"'
        )
    if login not in (NO_LOGIN, GOOGLE, AWS) and not is_function(login):
        known = '"none", "google"' if registry else '"none", "google", "aws"'
        raise ValueError(f'must be {known} or a function, as "<module>:<function>"')
    return login


@cache
def kafka_tokens(login: str, bootstrap_servers: str) -> KafkaTokens:
    """Return the one source of Kafka's tokens for all clients of a process."""
    tokens = partial(FreshTokens, setting="kafka_login")
    if login == GOOGLE:
        return KafkaTokens(tokens(GoogleTokens("kafka_login")), google_kafka_form)
    if login == AWS:
        return KafkaTokens(tokens(AwsTokens(bootstrap_servers)))
    return KafkaTokens(tokens(own_function(login, setting="kafka_login")))


@cache
def registry_tokens(login: str) -> RegistryTokens:
    """Return the one source of the registry's tokens for all clients of a process."""
    setting = "registry_login"
    is_google = login == GOOGLE
    source = GoogleTokens(setting) if is_google else own_function(login, setting=setting)
    return RegistryTokens(FreshTokens(source, setting=setting))


class GoogleTokens:
    """Access tokens of Google's default credentials: a key file, or the host's service account."""

    def __init__(self, setting: str) -> None:
        """Look for nothing yet; `setting` begins the texts of errors."""
        self._setting = setting
        self._credentials: Any = None

    def __call__(self) -> Token:
        """Fetch a token; blocks for some seconds at most."""
        Extra("google", ("google.auth", "requests")).require()
        from google.auth import default  # noqa: PLC0415 - optional
        from google.auth.transport.requests import Request  # noqa: PLC0415 - optional

        bounded: Any = partial(Request(), timeout=_ANSWER_S)
        if self._credentials is None:
            self._credentials, _ = default(scopes=[_GOOGLE_SCOPE], request=bounded)
        found = self._credentials
        found.refresh(bounded)
        # Users have an account; service accounts, also impersonated ones, an address.
        principal = getattr(found, "service_account_email", None) or getattr(found, "account", None)
        if found.expiry is None:
            raise ConfigError(
                f"{self._setting}: {type(found).__name__} has tokens without a time of expiry",
                hint="Use the credentials of a service account",
            )
        expires_at_s = found.expiry.replace(tzinfo=UTC).timestamp()
        return Token(found.token, expires_at_s, principal or "")


def google_kafka_form(token: Token) -> str:
    """Return an access token as Google's managed Kafka expects it.

    Three parts as of a JWT: a header of Google's own, the claims, and the token in place of a
    signature.
    """
    claims = {
        "exp": int(token.expires_at_s),
        "iat": int(time.time()),
        "iss": "Google",
        "scope": "kafka",
        "sub": token.principal,
    }
    parts = (json.dumps(_GOOGLE_HEADER), json.dumps(claims), token.value)
    return ".".join(base64.urlsafe_b64encode(one.encode()).decode().rstrip("=") for one in parts)


class AwsTokens:
    """Signed requests to MSK, by AWS's default credentials."""

    def __init__(self, bootstrap_servers: str) -> None:
        """Look for nothing yet; the names of MSK's brokers say their region."""
        self._bootstrap_servers = bootstrap_servers
        self._session: Any = None

    def __call__(self) -> Token:
        """Sign a request; blocks for some seconds where the host's role has to be asked for."""
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

        class Known(CredentialProvider):  # type: ignore[misc, unused-ignore]
            """The session's, which renews them itself."""

            def load(self) -> Any:
                return credentials

        value, expires_at_ms = MSKAuthTokenProvider.generate_auth_token_from_credentials_provider(
            self._region(), Known()
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
    """Return the source that a function of the program is.

    The text of what it raises is left out of errors: it may hold a secret.
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
        case [datetime(tzinfo=zone) as expires_at, *more] if zone is not None:
            expires_at_s = expires_at.timestamp()
        case [int() | float() as seconds, *more]:
            expires_at_s = float(seconds)
        case _:
            raise ConfigError(f"{setting}: {login} returned no time of expiry", hint=_RETURNS)
    principal = more[0] if more else ""
    return Token(value, expires_at_s, principal if isinstance(principal, str) else "")
