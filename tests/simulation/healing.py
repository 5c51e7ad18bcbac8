"""After the faults: everybody comes back, the world is fair, and all that was committed comes out.

The budget is in rounds, a round being a turn for everybody; what has not come about at its end is
what liveness is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.world import World

__all__ = ["Healing"]

_ROUNDS_MAX = 3_000
_ROUND_US = 40_000


class Healing:
    """See the module."""

    def __init__(self, world: World) -> None:
        self._world = world

    def run(self) -> None:
        """End when the watermark has passed the last commit, or the budget is used up."""
        world = self._world
        world.is_healing = True
        world.tell("world", "phase", "healing")
        for node in (*world.nodes, *world.zombies):
            node.is_paused = False
        for _ in range(3):
            world.commit()
            world.let_time_pass()
        horizon_us = self._horizon_us()
        for _ in range(_ROUNDS_MAX):
            world.at += 1
            world.now_us += _ROUND_US
            self._do_a_round()
            if world.history.broken or self._is_done(horizon_us):
                return
        self._say_what_is_missing(horizon_us)

    def _do_a_round(self) -> None:
        world = self._world
        for node in list(world.nodes):
            if not node.is_alive:
                world.restart(node)
        awake = [node for node in (*world.nodes, *world.zombies) if node.is_alive]
        living = {node.name for node in awake}
        for name in list(world.broker.group.members):
            if name not in living:
                world.broker.group.expire(name)
        # A process that is gone began the others, perhaps one of a name that lives again.
        world.broker.time_out_all_but([node.publisher.handle for node in awake])
        for node in awake:
            node.client.work()
            for _ in range(6):
                if node.is_alive:
                    node.step()
        world.broker.group.complete()
        world.broker.settle()
        for _ in range(4):
            world.step_consumer()

    def _horizon_us(self) -> int:
        world = self._world
        last_us = max((c.commit_timestamp_us for c in world.spanner.committed), default=0)
        end_us = world.history.end_us
        return last_us if end_us is None else end_us

    def _is_done(self, horizon_us: int) -> bool:
        world = self._world
        claims = world.history.claims
        if not claims or claims[-1].watermark_us < horizon_us:
            return False
        if world.broker.group.orphans or not all(n.client.is_settled for n in world.nodes):
            return False
        return world.checkpoint.committed >= claims[-1].batch

    def _say_what_is_missing(self, horizon_us: int) -> None:
        history = self._world.history
        reached = history.claims[-1].watermark_us if history.claims else None
        if reached is None or reached < horizon_us:
            behind = None if reached is None else horizon_us - reached
            history.unhealed.append(f"the watermark is {behind} µs behind the last commit")
        orphans = sorted(self._world.broker.group.orphans)
        if orphans:
            history.unhealed.append(f"slots belong to nobody: {orphans}")
        history.unhealed += [
            f"{node.name} does not come to rest in the group: {node.client.state.value}"
            for node in self._world.nodes
            if not node.client.is_settled
        ]
