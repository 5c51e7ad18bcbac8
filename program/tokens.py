"""Tokens that expire: kept while they are valid, and renewed before they expire.

A source that fails does no harm while the last token is valid.  After that each use raises an error
that says so; nothing waits longer than one call of the source may take.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import structlog

from tidegate.program.bounded_call import CallHangs, call_bounded
from tidegate.schemas.errors import TidegateError, UnreachableError

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
