"""The Kafka client's own log lines, in the program's log and at a bearable rate.

librdkafka reports a broker that is down several times a second, for every connection.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import structlog

_INTERVAL_S = 60.0


class KafkaClientLog:
    """What confluent-kafka's option `logger` takes: at most one line per kind and interval.

    A kind is librdkafka's facility, such as `FAIL` or `SSL`; the next line of a kind says how many
    were left out.  One object serves all clients of a process, from any thread.
    """

    def __init__(
        self, *, interval_s: float = _INTERVAL_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Start with nothing written; `clock` returns seconds and never goes back."""
        self._interval_s = interval_s
        self._clock = clock
        self._lock = threading.Lock()
        self._written_at: dict[str, float] = {}
        self._left_out: dict[str, int] = {}
        self._log = structlog.get_logger()

    def log(self, level: int, template: str, *arguments: str) -> None:
        """Write or count one line; the signature is that of `logging.Logger.log`."""
        kind, client, text = arguments if len(arguments) == 3 else ("", "", template % arguments)
        with self._lock:
            now = self._clock()
            if now - self._written_at.get(kind, float("-inf")) < self._interval_s:
                self._left_out[kind] = self._left_out.get(kind, 0) + 1
                return
            self._written_at[kind] = now
            left_out = self._left_out.pop(kind, 0)
        fields = {"kind": kind, "client": client, "text": text, "left_out": left_out}
        if level >= logging.WARNING:
            self._log.warning("Kafka client", **fields)
        else:
            self._log.info("Kafka client", **fields)
