"""Drives the worker that puts parked changes back: into the group, through its one transaction.

For one thread, which has to come back here every few seconds: the group is polled from here.  It
reads the dead-letter topic three times: which changes were put back before, which keys can be put
back now, and those keys' changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.producer.core import events as on
from tidegate.producer.driver.clock import SystemClock
from tidegate.producer.errors import RedriveFailed
from tidegate.producer.translation.parked_survey import ParkedSurvey
from tidegate.producer.translation.putting_back import batches
from tidegate.schemas.instants import US_PER_SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tidegate.producer.core.redrive import RedrivingWorker
    from tidegate.producer.driver.loop import FleetWorker
    from tidegate.producer.messages import (
        ChangeMessage,
        DeadLetter,
        ParkedChange,
        PublishableRecord,
    )
    from tidegate.producer.ports import Clock
    from tidegate.producer.translation.parked_survey import Selection

__all__ = ["Redriver", "put_back_parked"]

_KEEP_ALIVE_CHANGES = 500


def put_back_parked(
    read: Callable[[], Iterable[DeadLetter | None]],
    translate: Callable[[ParkedChange], ChangeMessage],
    redriver: Redriver | None,
    *,
    topic: str | None = None,
    progress: Callable[[str, int], None] = lambda _what, _done: None,
) -> Selection:
    """Put back the parked changes of every key that can be; return which keys these are.

    `read` reads the dead-letter topic from its beginning, `translate` makes the message of a parked
    change or raises one of `parking.POISON`.  Without a redriver, which has joined the group,
    nothing is put back.  `topic` restricts it to one data topic; `progress` is called with what is
    being done and how many records are done.

    Raises what `read` and `translate` raise, and RedriveFailed; then nothing was put back, except
    that a commit may have no known outcome.
    """

    def reading(what: str) -> Iterator[DeadLetter | None]:
        """Read the topic from its beginning; the group is polled in between."""
        for number, letter in enumerate(read()):
            if redriver is not None and (letter is None or not number % _KEEP_ALIVE_CHANGES):
                redriver.keep_alive()
            progress(what, number)
            yield letter

    survey = ParkedSurvey(translate)
    for letter in reading("looking for what was put back before"):
        if letter is not None:
            survey.note_redriven(letter)
    for letter in reading("translating parked changes"):
        if letter is not None:
            survey.add(letter)
    selection = survey.select(topic)
    if redriver is not None and selection.chosen:
        again = reading("putting changes back")
        redriver.put_back(selection.numbers, batches(again, survey, selection, translate))
    return selection


class Redriver:
    """One redrive: `join`, `keep_alive` while it is prepared, `put_back`, `close`."""

    def __init__(
        self,
        fleet_worker: FleetWorker,
        core: RedrivingWorker,
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

        Raises RedriveFailed if it does not get all of them, and what else stops the worker.
        """
        give_up_at_us = self._clock.monotonic_us() + self._patience_us
        self._fleet_worker.start()
        while not self._core.owns_all_slots:
            self._step()
            if self._clock.monotonic_us() > give_up_at_us:
                raise RedriveFailed("other members of the group have slots")

    def keep_alive(self) -> None:
        """Poll the group; raises RedriveFailed if slots were taken away."""
        self._step()
        if not self._core.owns_all_slots:
            raise RedriveFailed("slots were taken away: a worker has joined the group")

    def put_back(
        self, numbers: frozenset[int], batches: Iterable[tuple[PublishableRecord, ...]]
    ) -> None:
        """Publish all batches in one transaction, in which stream partitions forget the keys.

        Returns once it is committed.  Raises RedriveFailed, or what reading the batches raised,
        after the transaction was aborted.
        """
        self._process(on.RedriveBegan(numbers))
        try:
            for batch in batches:
                if batch:
                    self._process(on.RedriveRead(batch))
                self._step()
        except Exception:
            self._abort()
            raise
        self._fleet_worker.process(on.RedriveEnded())
        while self._fleet_worker.step():
            pass
        if self._fleet_worker.error is not None:
            raise self._fleet_worker.error

    def close(self) -> None:
        """Leave the group and release the clients."""
        self._fleet_worker.close()

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
            raise RedriveFailed("it was asked to stop")

    def _raise_error(self) -> None:
        if self._fleet_worker.error is not None:
            raise self._fleet_worker.error
