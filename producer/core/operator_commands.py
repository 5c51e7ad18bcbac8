"""Operators' commands to a running worker, read from the root's slot: pause, resume, leave.

Every worker reads that slot from its beginning, and the control with the highest number applies:
controls are numbered in the order of their offsets.  Reading never moves backwards: a drain that
was read twice would count as a new one.  A worker that starts on a paused stream has to know that
before it reads anything, so no query starts before the slot was read to its end once.

A drain applies to the process that is running when it is read.  Drains before the end that the
worker reached first existed when it started, and were meant for its predecessor.
"""

from __future__ import annotations

from tidegate.producer.core import events as on
from tidegate.producer.errors import ProgressLost
from tidegate.schemas.progress import ControlState, StreamControl, WorkerDrain
from tidegate.schemas.topics import ROOT_TOKEN, slot_of

_ROOT_SLOT = slot_of(ROOT_TOKEN, slots=1)
"""The slot of the root with any number of slots: the checksum of an empty token is 0."""


class OperatorCommands:
    """The commands that one worker has read."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._epoch: str | None = None
        self._is_at_end = False
        self._controls: dict[str, StreamControl] = {}
        """The newest control of each epoch: records may be read before the epoch is known."""
        self._position = 0
        """The next offset of the root's slot."""
        self._awaited = 0
        """The number of the newest control that a slot's owner has confirmed, as far as it was
        read."""
        self.is_drained = False
        """Whether this process has to leave the fleet."""

    @property
    def may_read(self) -> bool:
        """Whether queries may run: the stream is known not to be paused."""
        if self._epoch is None or not self._is_at_end or self.paused_by is not None:
            return False
        control = self._control
        return self._awaited <= (0 if control is None else control.number)

    @property
    def paused_by(self) -> int | None:
        """The number of the current pause; None if the stream is not paused."""
        control = self._control
        is_paused = control is not None and control.state is ControlState.PAUSED
        return control.number if control is not None and is_paused else None

    @property
    def _control(self) -> StreamControl | None:
        return None if self._epoch is None else self._controls.get(self._epoch)

    def advance(self, event: on.RootSlotRead) -> None:
        """Record how far the slot was read; raises ProgressLost if reading moved backwards."""
        if event.begin < self._position:
            raise ProgressLost(
                "reading a slot moved backwards",
                slot=_ROOT_SLOT,
                was=self._position,
                now=event.begin,
            )
        self._position = max(self._position, event.end)

    def handle(self, event: on.RootSlotRead) -> None:
        """Add records of the root's slot."""
        for record in event.records:
            body = record.body
            if isinstance(body, StreamControl):
                former = self._controls.get(record.epoch)
                if former is None or body.number > former.number:
                    self._controls[record.epoch] = body
            elif isinstance(body, WorkerDrain) and body.worker == self._worker:
                self.is_drained = self.is_drained or self._is_at_end
        self._is_at_end |= event.is_at_end

    def await_control(self, number: int) -> None:
        """Allow no query before a control is read that a slot's owner has confirmed.

        A paused slot stays paused when it moves to a worker that has not read the pause.
        """
        self._awaited = max(self._awaited, number)

    def open(self, epoch: str) -> None:
        """Set the epoch whose commands apply."""
        self._epoch = epoch
