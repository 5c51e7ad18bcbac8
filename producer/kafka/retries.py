"""The retry policy of calls to Kafka: a broker that restarts is back within seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_delay, wait_fixed

PATIENCE_S = 60.0
PAUSE_S = 0.1

_Answer = TypeVar("_Answer")


def retry(
    call: Callable[[], _Answer],
    *,
    is_retriable: Callable[[KafkaError], bool] = lambda _error: True,
    before_retry: Callable[[KafkaError], None] = lambda _error: None,
) -> _Answer:
    """Return what `call` returns; repeat it every tenth of a second while it fails, for a minute.

    Raises the last KafkaException when the minute is over, and at once one that is not retriable.
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
