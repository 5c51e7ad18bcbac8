"""A call of a Kafka client that is given up when it does not return.

librdkafka has calls that wait for an answer without end, and now and then drops the question: after
a broker was down, a fence has been seen never to return.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue


class CallHangs(Exception):  # noqa: N818 - named for what happened; each caller turns it into its own outcome
    """The call has not returned; it stays behind, on a thread of its own."""


def call_bounded(call: Callable[[], object], *, within_s: float) -> None:
    """Make a call on a thread of its own and wait for its end, for `within_s` seconds at most.

    Raises what the call raises, and CallHangs.
    """
    answers: SimpleQueue[BaseException | None] = SimpleQueue()

    def make() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - raised where it was asked for
            answers.put(error)
        else:
            answers.put(None)

    threading.Thread(target=make, name="kafka-call", daemon=True).start()
    try:
        error = answers.get(timeout=within_s)
    except Empty:
        raise CallHangs from None
    if error is not None:
        raise error
