"""Ends a worker when a bounded stream is completely published, with `until = "ended"`.

A worker knows its own slots only, so this reads the whole progress topic, as `status` does.  If
only stopped stream partitions are left, and others that wait for them, the stream does not end.
Neither is its end found out while reading fails with an error that no retry repairs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Protocol

import structlog

from tidegate.lineage.fleet_status import PartitionCondition, PartitionStatus
from tidegate.producer.cli.fleet_reader import FleetReader, FleetRecords
from tidegate.producer.config import ProducerConfig
from tidegate.producer.errors import EndNotReached, StreamNotStarted
from tidegate.program.calls import Rejections
from tidegate.schemas.errors import TidegateError

_LOOK_S = 1.0
_AGAIN_S = 5.0
_HELD_LOOKS = 15
"""Number of looks in a row without any other stream partition before the watch gives up.

Records of another slot may be late.
"""

_log = structlog.get_logger()


class Reader(Protocol):
    """The methods of `FleetReader` that are used here."""

    def read(self) -> FleetRecords:
        """Return the state in the present records."""
        ...

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        ...

    def close(self) -> None:
        """Stop reading."""
        ...


class EndWatch:
    """A thread that calls `on_end` once: after the stream's end, or when it cannot be found out.

    An error that is not retriable ends the watch, unless the topic was read in the five minutes
    before it: a right may be missing while an operator changes it.
    """

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
        self._rejections = Rejections(time.monotonic)
        self.failure: TidegateError | None = None
        """Why the stream does not end, or why that cannot be found out."""
        self._thread = threading.Thread(target=self._run, name="end-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop looking; blocks until the current look has ended."""
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
                if not error.retriable and self._rejections.reject():
                    self.failure = error
                    self._on_end()
                    return
                _log.warning("reading interrupted", resource="stream's end", reason=str(error))
                self._stopping.wait(_AGAIN_S)

    def _is_over(self, reader: Reader) -> bool:
        """Whether the stream has ended, or cannot; False if the watch is stopped before."""
        looks = 0
        while not self._stopping.is_set():
            status = reader.read().fleet()
            self._rejections.accept()
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
    """Return the stopped stream partitions if no other is read; otherwise nothing."""
    is_read = any(partition.condition is PartitionCondition.OPEN for partition in partitions)
    return [] if is_read else [entry for entry in partitions if entry.reason is not None]
