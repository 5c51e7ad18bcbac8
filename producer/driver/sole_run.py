"""Drives a worker that is alone in its group through its one transaction.

For one thread, which has to come back here every few seconds: the group is polled from here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidegate.producer.core import events as on
from tidegate.producer.core.sole_workers import SoleWorker
from tidegate.producer.driver.clock import SystemClock
from tidegate.producer.ports import Clock
from tidegate.schemas.errors import ProducerError
from tidegate.schemas.instants import US_PER_SECOND

if TYPE_CHECKING:
    from tidegate.producer.driver.loop import FleetWorker


class SoleRun:
    """One run: `join`, `keep_alive` while it is prepared, what a subclass does, `close`.

    `failed` makes the error that says that nothing was done, of a reason.
    """

    failed: Callable[[str], ProducerError]

    def __init__(
        self,
        fleet_worker: FleetWorker,
        core: SoleWorker,
        *,
        patience_s: float,
        clock: Clock | None = None,
    ) -> None:
        """Take the worker and its core; `patience_s` is how long it may take to own all slots."""
        self._fleet_worker = fleet_worker
        self._core = core
        self._patience_us = round(patience_s * US_PER_SECOND)
        self._clock = clock or SystemClock()

    def join(self) -> None:
        """Join the group and take over all slots.

        Raises the error of `failed` if it does not get all of them, and what else stops the worker.
        """
        give_up_at_us = self._clock.monotonic_us() + self._patience_us
        self._fleet_worker.start()
        while not self._core.is_ready:
            self._step()
            if self._clock.monotonic_us() > give_up_at_us:
                raise self.failed("other members of the group have slots")

    def keep_alive(self) -> None:
        """Poll the group; raises the error of `failed` if slots were taken away."""
        self._step()
        if not self._core.is_ready:
            raise self.failed("slots were taken away: a worker has joined the group")

    def close(self) -> None:
        """Leave the group and release the clients."""
        self._fleet_worker.close(leaves_group=True)

    def _finish(self, event: on.Event) -> None:
        """Give the last event; return once the transaction is committed."""
        self._fleet_worker.process(event)
        while self._fleet_worker.step():
            pass
        if self._fleet_worker.error is not None:
            raise self._fleet_worker.error

    def _abort(self) -> None:
        """Make the core abort its transaction, so that readers need not wait for its time-out."""
        self._fleet_worker.request_drain()
        while self._fleet_worker.step():
            pass

    def _process(self, event: on.Event) -> None:
        self._fleet_worker.process(event)
        self._raise_error()

    def _step(self) -> None:
        if not self._fleet_worker.step():
            self._raise_error()
            raise self.failed("it was asked to stop")

    def _raise_error(self) -> None:
        if self._fleet_worker.error is not None:
            raise self._fleet_worker.error
