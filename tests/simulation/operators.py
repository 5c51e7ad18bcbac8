"""What operators want of a running fleet: it pauses, goes on, and loses single workers.

The records are written by the production driver, as `commands.control` puts it together.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from tests.simulation.history import Control
from tidegate.lineage.fleet_status import FleetStatus, fleet_status
from tidegate.lineage.fleet_view import FleetView
from tidegate.lineage.frontier import ProgressRow
from tidegate.producer.driver.command_sender import send_commands
from tidegate.producer.memory.log import TOMBSTONE
from tidegate.producer.memory.publisher import MemoryPublisher
from tidegate.schemas.progress import (
    ControlState,
    ProgressBody,
    ProgressRecord,
    StreamControl,
    StreamStarted,
    WorkerDrain,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.world import World

__all__ = ["Operators"]

_AUTHOR = "_control"


class Operators:
    """Everybody who runs `pause`, `resume` and `drain`; nobody does before the stream is open."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._random = Random(f"operators {seed}")
        self._number = 0
        self.is_to_pause = False
        """Whether the last thing that was said is to pause."""

    # ------------------------------------------------------------ faults

    def pause_or_resume(self) -> None:
        """Do the other thing than the last one."""
        self.control(ControlState.RUNNING if self.is_to_pause else ControlState.PAUSED)

    def drain_one(self) -> None:
        """Take a worker away; somebody may start it again, at any time."""
        names = [node.name for node in self._world.nodes]
        self.drain(self._random.choice(names))

    def deeds(self) -> list[tuple[Callable[[], None], float]]:
        """Return what they do, and how often."""
        weather = self._world.weather
        return [(self.pause_or_resume, weather.controls), (self.drain_one, weather.drains)]

    # ------------------------------------------------------------ commands

    def control(self, state: ControlState) -> bool:
        """Pause or resume; return whether it was said."""
        world, number = self._world, self._number + 1
        if not self._say(StreamControl(number, state, "operator", world.now_us)):
            return False
        self._number, self.is_to_pause = number, state is ControlState.PAUSED
        world.history.controls.append(Control(world.at, number, state is ControlState.PAUSED))
        what = "paused" if state is ControlState.PAUSED else "resumed"
        world.tell("operator", "fault", f"the stream is {what}")
        return True

    def drain(self, name: str) -> bool:
        """Take a worker away; return whether it was said."""
        is_said = self._say(WorkerDrain(name, "operator", self._world.now_us))
        if is_said:
            self._world.tell("operator", "fault", "a worker is drained")
        return is_said

    def status(self) -> FleetStatus | None:
        """Return what `status` would say, None before the stream is open."""
        world = self._world
        started = world.ground.started()
        if started is None or not isinstance(started.body, StreamStarted):
            return None
        topic = world.names.progress
        view = FleetView(epoch=started.epoch, progress_topic=topic, slots=world.slots)
        logs = [world.broker.logs[topic, slot] for slot in range(world.slots)]
        rows = [
            ProgressRow(slot, entry.offset, entry.value)  # type: ignore[arg-type]
            for slot, log in enumerate(logs)
            for entry in log.read()
            if entry.value is not TOMBSTONE
        ]
        view.fold(rows, reached={slot: log.stable_end for slot, log in enumerate(logs)})
        return fleet_status(view, started.body, epoch=started.epoch)

    # ------------------------------------------------------------ inside

    def _say(self, body: ProgressBody) -> bool:
        world = self._world
        started = world.ground.started()
        if started is None or (world.ground.final is not None and not world.is_healing):
            return False
        publisher = MemoryPublisher(
            world.broker, transactional_id=_AUTHOR, progress_topic=world.names.progress
        )
        send_commands(publisher, lambda: [ProgressRecord(started.epoch, _AUTHOR, body)])
        return True
