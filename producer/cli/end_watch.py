"""Ends a worker when a bounded stream is published whole; `until = "ended"` asks for it.

A worker knows its own slots only, so the progress topic is read, as `status` reads it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from typing import Protocol

import structlog

from tidegate.producer.cli.fleet_reader import FleetReader, FleetRecords
from tidegate.producer.config import ProducerConfig
from tidegate.producer.errors import StreamNotStarted
from tidegate.schemas.errors import TidegateError

_LOOK_S = 1.0
_AGAIN_S = 5.0

_log = structlog.get_logger()


class Reader(Protocol):
    """`FleetReader`, as far as it is needed here."""

    def read(self) -> FleetRecords:
        """Return what the records say now."""
        ...

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        ...

    def close(self) -> None:
        """Stop reading."""
        ...


class EndWatch:
    """A thread that calls `on_end` once, from a moment after the stream's end on."""

    def __init__(
        self,
        config: ProducerConfig,
        on_end: Callable[[], None],
        *,
        open_reader: Callable[[ProducerConfig], Reader] = FleetReader,
    ) -> None:
        """Start to look."""
        self._config = config
        self._on_end = on_end
        self._open_reader = open_reader
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="end-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop looking; returns within a look."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with closing(self._open_reader(self._config)) as reader:
                    if self._is_ended(reader):
                        _log.info("stream ended")
                        self._on_end()
                        return
            except StreamNotStarted:
                self._stopping.wait(_LOOK_S)
            except TidegateError as error:
                _log.warning("reading interrupted", resource="stream's end", reason=str(error))
                self._stopping.wait(_AGAIN_S)

    def _is_ended(self, reader: Reader) -> bool:
        """Whether the stream has ended; False if the watch is stopped before."""
        while not self._stopping.is_set():
            if reader.read().fleet().has_ended:
                return True
            reader.wait(_LOOK_S)
        return False
