"""Calls of Kafka's clients, retried while the broker does not answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from threading import Thread
from typing import Any, Generic, TypeVar

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_delay, wait_fixed

from tidegate.program.kafka_clients import make_client
from tidegate.program.kafka_errors import is_denied, kafka_failure
from tidegate.program.tokens import KafkaTokens
from tidegate.schemas.errors import UnreachableError

PATIENCE_S = 60.0
PAUSE_S = 0.1
_log = structlog.get_logger()

_Answer = TypeVar("_Answer")


def retry(
    call: Callable[[], _Answer],
    *,
    is_retriable: Callable[[KafkaError], bool] = lambda _error: True,
    before_retry: Callable[[KafkaError], None] = lambda _error: None,
) -> _Answer:
    """Return the result of `call`; repeat it every tenth of a second while it fails, for a minute.

    Raises the last KafkaException when the minute is over, or at once if it is not retriable.
    Other exceptions are not retried.
    """

    def attempt() -> _Answer:
        try:
            return call()
        except KafkaException as error:
            # The state of the retries and the traceback refer to each other.  With the frames of
            # the call in it, its Kafka client would live until a garbage collection, and could be
            # destroyed by it in a thread of the client's own, which ends the process.
            raise error.with_traceback(None) from None

    def is_worth_retrying(error: BaseException) -> bool:
        return isinstance(error, KafkaException) and is_retriable(error.args[0])

    def on_retry(state: RetryCallState) -> None:
        failure = None if state.outcome is None else state.outcome.exception()
        if failure is not None:
            before_retry(failure.args[0])

    return Retrying(
        retry=retry_if_exception(is_worth_retrying),
        stop=stop_after_delay(PATIENCE_S),
        wait=wait_fixed(PAUSE_S),
        before_sleep=on_retry,
        reraise=True,
    )(attempt)


CALL_TIMEOUT_S = 5.0
"""The time-out of one call; a retry follows."""

_Client = TypeVar("_Client")


class RetryingClient(Generic[_Client]):
    """A client that is created at the first call, and re-created after a failure; for one thread.

    A client that saw a broker disconnect keeps the epochs of its leaders, which brokers then
    reject, and finds no coordinator any more.
    """

    def __init__(self, make: Callable[[], _Client]) -> None:
        """Create no client yet; `make` raises ConfigError for options that Kafka rejects."""
        self._make = make
        self._client: _Client | None = None

    def call(self, ask: Callable[[_Client], _Answer], message: str, **fields: Any) -> _Answer:
        """Return the result of `ask`; retries every KafkaException for a minute.

        Raises UnreachableError, with the message and the fields, when the minute is over, and
        ConfigError at once if an ACL is missing.
        """
        try:
            return retry(
                lambda: ask(self._current()),
                is_retriable=lambda reason: not is_denied(reason),
                before_retry=self._before_retry,
            )
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            if is_denied(reason):
                raise kafka_failure(reason, attempt=message) from error
            raise UnreachableError(message, **fields, cause=str(error)) from error

    def close(self) -> None:
        """Drop the client and its threads; the next call creates another one."""
        self._client = None

    def _current(self) -> _Client:
        if self._client is None:
            self._client = self._make()
        return self._client

    def _before_retry(self, error: KafkaError) -> None:
        # An open transaction that may move an offset is not a fault of the client.
        if error.code() != KafkaError.UNSTABLE_OFFSET_COMMIT:
            self._client = None


class RetryingAdmin(RetryingClient[AdminClient]):
    """An admin client."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Start without a client; nothing is sent yet."""
        options = dict(config)
        super().__init__(lambda: make_client(AdminClient, options))


_TOKEN_PAUSE_S = 10.0
"""The pause after a login without a token."""


class SharedAdmin:
    """An admin client for several users of one thread; each may replace it for all of them.

    A user that got no answer replaces the client that it asked, but not a newer one.
    """

    def __init__(
        self, config: Mapping[str, Any], *, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        """Start without a client; the first use creates it.  `clock_s` is monotonic."""
        self._config = dict(config)
        self._clock_s = clock_s
        self._client: AdminClient | None = None
        self._making: Future[AdminClient] | None = None
        self._make_at_s = 0.0

    def client(self) -> AdminClient | None:
        """Return the current client; None while its login has no token.  Never blocks.

        A source of tokens may hang, or fail for a while: then another attempt follows.  Raises
        ConfigError for a source that cannot work.
        """
        if self._client is None:
            waits = isinstance(self._config.get("oauth_cb"), KafkaTokens)
            self._client = self._made() if waits else make_client(AdminClient, self._config)
        return self._client

    def _made(self) -> AdminClient | None:
        """Return the client that another thread has made; None until then."""
        if self._making is None and self._clock_s() >= self._make_at_s:
            self._making = Future()
            Thread(
                target=self._make, args=(self._making,), name="admin-client", daemon=True
            ).start()
        if self._making is None or not self._making.done():
            return None
        making, self._making = self._making, None
        try:
            return making.result()
        except UnreachableError as error:
            self._make_at_s = self._clock_s() + _TOKEN_PAUSE_S
            _log.debug("no admin client", reason=str(error))
            return None

    def _make(self, making: Future[AdminClient]) -> None:
        try:
            making.set_result(make_client(AdminClient, self._config))
        except BaseException as error:  # noqa: BLE001 - raised where the client is used
            making.set_exception(error)

    def replace(self, client: AdminClient | None) -> None:
        """Drop a client, unless it has already been replaced."""
        if self._client is client:
            self._client = None


class CommittedOffsets:
    """The committed offsets of one group; for one thread."""

    def __init__(self, config: Mapping[str, Any], *, group: str) -> None:
        """Start with the options that all clients share; nothing is sent yet."""
        self.group = group
        options = {
            **config,
            "group.id": group,
            "enable.auto.commit": False,
            # This is how long a commit waits for a coordinator.
            "session.timeout.ms": int(CALL_TIMEOUT_S * 1_000),
            "heartbeat.interval.ms": 1_000,
            # Then the answer waits for open transactions that would move the offset.
            "isolation.level": "read_committed",
        }
        self._client = RetryingClient(lambda: make_client(Consumer, options))

    def find(self, topic: str, topic_partition: int, message: str, **fields: Any) -> TopicPartition:
        """Return the place with its `offset`, negative if none is committed, and its `metadata`.

        Waits for up to a minute while a transaction that would move the offset is open, or no
        answer comes; then raises UnreachableError with the message and the fields.  Raises
        ConfigError if an ACL is missing.
        """
        place = TopicPartition(topic, topic_partition)

        def ask(client: Consumer) -> TopicPartition:
            (committed,) = client.committed([place], timeout=CALL_TIMEOUT_S)
            if committed.error is not None:
                raise KafkaException(committed.error)
            return committed

        return self._client.call(ask, message, **fields)

    def write(self, place: TopicPartition, message: str, **fields: Any) -> None:
        """Commit the place's offset and metadata, for a group without members.

        Raises the errors of `find`.
        """

        def ask(client: Consumer) -> None:
            (committed,) = client.commit(offsets=[place], asynchronous=False)
            if committed.error is not None:
                raise KafkaException(committed.error)

        self._client.call(ask, message, **fields)

    def close(self) -> None:
        """Drop the client; the next call creates another one."""
        self._client.close()
