"""Ends a worker when a bounded stream is published whole; `until = "ended"` asks for it.

A worker knows its own slots only, so the progress topic is read, as `status` reads it.  Where only
stopped stream partitions are left, and those that wait for them, the end cannot come.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Protocol

import structlog

from tidegate.lineage.fleet_status import PartitionCondition, PartitionStatus
from tidegate.producer.cli.fleet_reader import FleetReader, FleetRecords
from tidegate.producer.config import ProducerConfig
from tidegate.producer.errors import EndNotReached, StreamNotStarted
from tidegate.schemas.errors import TidegateError

_LOOK_S = 1.0
_AGAIN_S = 5.0
_HELD_LOOKS = 15
"""So often in turn nothing else is left, before that is final: another slot may be late."""

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
    """A thread that calls `on_end` once: soon after the stream's end, or when that cannot come."""

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
        self.failure: EndNotReached | None = None
        """Why the stream does not end."""
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
                    if self._is_over(reader):
                        if self.failure is None:
                            _log.info("stream ended")
                        self._on_end()
                        return
            except StreamNotStarted:
                self._stopping.wait(_LOOK_S)
            except TidegateError as error:
                _log.warning("reading interrupted", resource="stream's end", reason=str(error))
                self._stopping.wait(_AGAIN_S)

    def _is_over(self, reader: Reader) -> bool:
        """Whether the stream has ended, or cannot; False if the watch is stopped before."""
        looks = 0
        while not self._stopping.is_set():
            status = reader.read().fleet()
            if status.has_ended:
                return True
            stopped = held_by(status.partitions)
            looks = looks + 1 if stopped else 0
            if looks >= _HELD_LOOKS:
                slowest, count = stopped[0], len(stopped)
                self.failure = EndNotReached(slowest.token, slowest.reason or "", stopped=count)
                return True
            reader.wait(_LOOK_S)
        return False


def held_by(partitions: Sequence[PartitionStatus]) -> Sequence[PartitionStatus]:
    """Return the stopped stream partitions where none is read any more; else nothing."""
    is_read = any(one.condition is PartitionCondition.OPEN for one in partitions)
    return [] if is_read else [one for one in partitions if one.reason is not None]
