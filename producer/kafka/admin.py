"""Calls of Kafka's clients, retried while the broker does not answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from tidegate.producer.kafka.retries import retry
from tidegate.program.kafka_clients import make_client
from tidegate.program.kafka_errors import is_denied, kafka_failure
from tidegate.schemas.errors import UnreachableError

CALL_TIMEOUT_S = 5.0
"""For one call; a retry follows."""

_Answer = TypeVar("_Answer")
_Client = TypeVar("_Client")


class RetryingClient(Generic[_Client]):
    """A client that is made for the first call, and again when one fails; for one thread.

    Again, because a client that saw a broker disconnect keeps the epochs of its leaders, which are
    refused, and then finds no coordinator.
    """

    def __init__(self, make: Callable[[], _Client]) -> None:
        """Make nothing yet; `make` raises ConfigError for options that Kafka refuses."""
        self._make = make
        self._client: _Client | None = None

    def call(self, ask: Callable[[_Client], _Answer], message: str, **fields: Any) -> _Answer:
        """Return what `ask` returns; retries every KafkaException for a minute.

        Raises UnreachableError, with the message and the fields, when the minute is over, and
        ConfigError at once if an ACL is missing.
        """
        try:
            return retry(
                lambda: ask(self._made()),
                is_retriable=lambda reason: not is_denied(reason),
                before_retry=self._before_retry,
            )
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            if is_denied(reason):
                raise kafka_failure(reason, attempt=message) from error
            raise UnreachableError(message, **fields, cause=str(error)) from error

    def close(self) -> None:
        """Drop the client and its threads; the next call makes another one."""
        self._client = None

    def _made(self) -> _Client:
        if self._client is None:
            self._client = self._make()
        return self._client

    def _before_retry(self, error: KafkaError) -> None:
        # An open transaction that may move an offset says nothing about the client.
        if error.code() != KafkaError.UNSTABLE_OFFSET_COMMIT:
            self._client = None


class RetryingAdmin(RetryingClient[AdminClient]):
    """An admin client."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Take the client's options; nothing is sent yet."""
        options = dict(config)
        super().__init__(lambda: make_client(AdminClient, options))


class SharedAdmin:
    """An admin client for several users of one thread; each may replace it for all of them.

    A user that was left without an answer replaces the client that it asked, and no newer one.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Take the client's options; it is made when it is asked for."""
        self._config = dict(config)
        self._client: AdminClient | None = None

    def client(self) -> AdminClient:
        """Return the client in use; raises UnreachableError where its login has no token."""
        self._client = self._client or make_client(AdminClient, self._config)
        return self._client

    def replace(self, client: AdminClient | None) -> None:
        """Drop a client, unless another one has taken its place."""
        if self._client is client:
            self._client = None
