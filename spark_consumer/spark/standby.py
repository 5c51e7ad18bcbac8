"""Waits for a checkpoint that another run works on, and keeps the lease of the run that has it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import structlog
from py4j.protocol import Py4JError

from tidegate.program.status_server import Health
from tidegate.schemas.errors import ConfigError, UnreachableError
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.checkpoint.writers import (
    RENEWED_EVERY_S,
    Lease,
    LeaseWatch,
    seen_lease,
)
from tidegate.spark_consumer.errors import WriterReplaced

_LOOK_EVERY_S = 0.5


def wait_for_turn(
    gate: Storage,
    *,
    stop: threading.Event,
    health: Health,
    clock: Callable[[], float] = time.monotonic,
    wait_s: float = _LOOK_EVERY_S,
) -> bool:
    """Block while another run works on the checkpoint; return False if `stop` was set.

    A killed run does not release its lease: it counts as gone after three missed renewals.
    """
    watch = LeaseWatch()
    standing_by_for = 0
    while True:
        seen = seen_lease(gate, gate.writers.newest())
        if watch.may_take(seen, now_s=clock()):
            return True
        if watch.is_renewed and seen.writer != standing_by_for:
            standing_by_for = seen.writer
            reason = f"stands by: run {seen.writer} works on this checkpoint"
            health.set_not_ready(reason)
            _log().info("stands by: another run works on this checkpoint", run=seen.writer)
        health.step()
        if stop.wait(wait_s):
            return False


def require_turn(
    gate: Storage,
    *,
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[float], object] = time.sleep,
) -> None:
    """Raise ConfigError if another run works on the checkpoint.

    Returns at once after a run that gave its lease back, and after some seconds after one that was
    killed; `wait` is called with seconds.
    """
    watch = LeaseWatch()
    while True:
        seen = seen_lease(gate, gate.writers.newest())
        if watch.may_take(seen, now_s=clock()):
            return
        if watch.is_renewed:
            raise ConfigError(
                "another run works on this checkpoint",
                hint="Stop that run, or take the checkpoint from it with the option take_over=True",
                run=seen.writer,
            )
        wait(_LOOK_EVERY_S)


class LeaseKeeper:
    """Renews a lease on its own thread, because a batch may take long.

    `failure` is WriterReplaced once another run has taken the checkpoint.
    """

    def __init__(
        self, lease: Lease, *, is_running: Callable[[], bool], every_s: float = RENEWED_EVERY_S
    ) -> None:
        """Renew once, and then until `is_running` returns False or `stop` is called."""
        self._lease = lease
        self._is_running = is_running
        self._every_s = every_s
        self._stopped = threading.Event()
        self._stopping = threading.Lock()
        self.failure: WriterReplaced | None = None
        lease.renew()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Release the lease, if it is still this run's.

        A second call, also on another thread, only waits until the first call has ended.
        """
        with self._stopping:
            if self._stopped.is_set():
                return
            self._stopped.set()
            self._thread.join()
            try:
                self._lease.give_back()
            except (WriterReplaced, UnreachableError, Py4JError, ConnectionError):
                return  # the next run finds out by itself

    def _run(self) -> None:
        while not self._stopped.wait(self._every_s) and self._is_running():
            try:
                self._lease.renew()
            except WriterReplaced as replaced:
                self.failure = replaced
                return
            except (Py4JError, ConnectionError):
                return  # the JVM has ended, and the query with it
            except UnreachableError as error:
                # The run's own writes will fail as well, and then end it.
                _log().warning("the lease was not renewed", cause=str(error))


def _log() -> Any:
    return structlog.get_logger("tidegate.spark_consumer")
