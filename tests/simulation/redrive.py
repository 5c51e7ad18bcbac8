"""The operator's redrive: one process that puts parked changes back, over the models.

The production driver and core run in it, as `commands.redrive` puts them together.  Nothing keeps
workers from running beside it: what an operator has forgotten to stop, and what wakes up again, is
what the fence is for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tests.simulation.node import Node, WatchedCore
from tests.simulation.poison import CorrectingTranslator
from tidegate.producer.core.redrive import RedrivingWorker
from tidegate.producer.core.worker import Worker
from tidegate.producer.driver.redriver import Redriver, put_back_parked
from tidegate.producer.errors import RedriveFailed
from tidegate.producer.messages import DeadLetter, ParkedChange
from tidegate.producer.spanner.values import values_of_text
from tidegate.producer.translation.putting_back import ParkedTranslator
from tidegate.schemas.errors import TidegateError

if TYPE_CHECKING:
    from tests.simulation.world import World

__all__ = ["NAME", "Redrive"]

NAME = "redrive"


class _WatchedRedriver(WatchedCore, RedrivingWorker):
    """The production core, checked after each event."""


class Redrive(Node):
    """One process of the redrive; `error` and `left` say how it ended."""

    def __init__(self, world: World, *, client_id: str, patience_s: float) -> None:
        self._patience_s = patience_s
        self.error: TidegateError | None = None
        """None while it runs, and once it has put back what can be put back."""
        self.left: list[str] = []
        """Why keys stay parked."""
        super().__init__(world, NAME, epoch=client_id, client_id=client_id)

    def new_core(self) -> Worker:
        return self.world.new_worker(self.name, self.epoch, self.identity, kind=_WatchedRedriver)

    def _run(self) -> None:
        world = self.world
        try:
            self._put_back()
        except RedriveFailed as error:
            self.error = error
            world.exited(self, type(error).__name__)
        except TidegateError as error:
            self.error = error
            world.ground.note_stop(self.name, error)
            self._ended_with(error)
        except Exception as error:  # noqa: BLE001 - a bug is a finding, not the end of the run
            world.broke(self, f"{type(error).__name__}: {error}")
        else:
            stays = "some keys stay parked" if self.left else "no key stays parked"
            world.exited(self, f"redriven: {stays}")

    def _put_back(self) -> None:
        core = self.worker
        assert isinstance(core, RedrivingWorker)
        translator = CorrectingTranslator(
            self.world.new_translator(self, parks=False), self.world.poison
        )
        parked = ParkedTranslator(translator, self.limits, values_of_text)
        redriver = Redriver(self.loop, core, patience_s=self._patience_s, clock=self.process.clock)
        try:
            redriver.join()
            selection = put_back_parked(self._letters, parked.message, redriver)
        finally:
            redriver.close()
        self.left = [f"{key.reason}: {key.error}" for key in selection.left]

    def _letters(self) -> Iterator[DeadLetter | None]:
        """Read the dead-letter topic as `kafka.dead_letters` does, some records at a time."""
        log = self.world.broker.logs[self.world.names.dead_letter, 0]
        position, end = 0, log.uncommitted_end
        while position < end:
            self.process.pause()
            stable = min(end, log.stable_end)
            if position >= stable:
                yield None
                continue
            for entry in log.read(position, stable):
                assert isinstance(entry.value, ParkedChange)
                yield DeadLetter(0, entry.offset, entry.value)
                if self.world.chance(0.1):
                    self.process.pause()
            position = stable
