"""What workers know of the fleet, noted where they read it and where they go by it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from tests.simulation.history import FleetRead, FleetSight
from tidegate.producer.core import events as on
from tidegate.producer.core.fleet_alignment import STALE_AFTER_US

if TYPE_CHECKING:
    from tests.simulation.world import World

__all__ = ["FleetSights"]

_LAG_US = STALE_AFTER_US + 2_000_000
"""How old what a worker goes by may be: a view in force, and the time to read and to report it."""


class FleetSights:
    """Notes nothing once offsets of the progress topic mean two lives of it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._ends: deque[tuple[int, dict[int, int]]] = deque()
        """Since the faults: when each slot ended where, for readers of what is committed."""

    def read(self, worker: str, event: on.FleetRead) -> None:
        """Note what a worker has just read."""
        if self._world.ground.final is None:
            read = FleetRead(worker, dict(event.lowest_us), self._slot_ends())
            self._world.history.fleet_reads.append(read)

    def look(self) -> None:
        """Note what the workers go by now."""
        world = self._world
        if world.ground.final is not None or not world.weather.drift_us:
            return
        ends = self._slot_ends()
        self._ends.append((world.now_us, ends))
        if self._ends[0][0] > world.now_us - _LAG_US:
            return
        while len(self._ends) > 1 and self._ends[1][0] <= world.now_us - _LAG_US:
            self._ends.popleft()
        for node in world.nodes:
            if node.knows_fleet:
                lowest_us = dict(node.worker._fleet._lowest)
                sight = FleetSight(node.name, lowest_us, self._ends[0][1], ends)
                world.history.fleet_sights.append(sight)

    def _slot_ends(self) -> dict[int, int]:
        world = self._world
        return {
            slot: world.broker.logs[world.names.progress, slot].stable_end
            for slot in range(world.slots)
        }
