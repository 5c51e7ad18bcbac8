"""After the faults: everybody comes back, the world is fair, and all that was committed comes out.

The budget is in rounds, a round being a turn for everybody; what has not come about at its end is
what liveness is missing.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.operators import expired_tokens
from tidegate.producer.errors import EndedInGap, GapNotAccepted
from tidegate.producer.memory.broker import Place
from tidegate.schemas.errors import TidegateError
from tidegate.schemas.progress import ControlState, PartitionGap
from tidegate.spark_consumer.core.file_names import state_file

_ROUNDS_MAX = 3_000
_ROUND_US = 40_000
_ROUNDS_LIMITED = 150
"""So long changes stay poison where stream partitions stop at the next key to park."""
_STOP_ROUNDS_MAX = 60_000_000 // _ROUND_US
_ROUNDS_BETWEEN_SIGHTS = 10
_ROUNDS_TO_VIEWS = 30_000_000 // _ROUND_US
_ROUNDS_OF_VIEWS = 10_000_000 // _ROUND_US
_ACCEPTANCES_MAX = 12
_COMMITS_AFTER_GAPS = 3
_ROUNDS_BETWEEN_COMMITS = 60
_ROUNDS_TO_PAUSE = 1_000
_ROUNDS_OF_PAUSE = 40
_PAUSES = 8  # of each worker in a round
_REDRIVE_PATIENCE_S = 60.0
_COMMITS_AFTER_REDRIVE = 6


class Healing:
    def __init__(self, world) -> None:
        self._world = world
        self._leaves_stopped = False
        """Whether the operator leaves stopped stream partitions as they are."""

    def run(self) -> None:
        """End when the watermark has passed the last commit, or the budget is used up."""
        world = self._world
        world.is_healing = True
        world.repeating.clear()
        world.tell("world", "phase", "healing")
        world.lift_limits()
        world.refused_schemas.takes_unknown_tables = True
        world.ground.heal()
        for redrive in world.redrives:
            redrive.kill()
        world.redrives.clear()
        for node in (*world.nodes, *world.zombies):
            node.woke_in_healing, node.is_paused = node.is_paused, False
        for _ in range(3):
            world.commit()
            world.let_time_pass()
        self._obey_operators()
        if world.is_limited and world.weather.poison and world.ground.final is None:
            self._goes_on_until(lambda: False, rounds=_ROUNDS_LIMITED)
        if not world.all_park:
            world.poison.lift()
            world.refused_schemas.end()
        horizon_us = self._horizon_us()
        if world.ground.final is not None:
            world.refused.clear()
            if world.ground.must_all_stop:
                self._wait_for_the_last_worker()
                return
            self._goes_on_until(world.ground.is_reported)
            if not self._gaps_are_accepted(horizon_us):
                return
            horizon_us = self._horizon_us()
        if world.refused:
            if not self._goes_on_until(lambda: not self._held_up(horizon_us)):
                world.history.held_up += self._held_up(horizon_us)
            world.tell("world", "phase", "no token is refused any more")
            world.refused.clear()
        is_done = self._goes_on_until(lambda: self._is_done(horizon_us))
        if is_done and world.names.dead_letter in {place[0] for place in self._written()}:
            self._put_back()
            horizon_us = self._horizon_us()
            is_done = self._goes_on_until(lambda: self._is_done(horizon_us))
        if not is_done:
            self._say_what_is_missing(horizon_us)
        elif world.weather.drift_us and not world.ground.consumer_has_ended:
            self._wait_for_the_views()

    def _obey_operators(self) -> None:
        """Let the fleet come to rest in a pause, go on, and do without one worker after another."""
        world = self._world
        operators, history = world.operators, world.history
        if not (world.weather.controls and world.ground.has_stream):
            return
        if world.ground.final is not None:
            if operators.is_to_pause and not world.ground.must_all_stop:
                operators.control(ControlState.RUNNING)
            return
        world.tell("world", "phase", "the stream is paused")
        if not operators.is_to_pause:
            operators.control(ControlState.PAUSED)
        if not self._goes_on_until(self._is_paused, rounds=_ROUNDS_TO_PAUSE):
            history.unhealed.append("a pause does not come about")
        before = self._changes_in_kafka()
        world.commit()
        self._goes_on_until(lambda: False, rounds=_ROUNDS_OF_PAUSE)
        if self._changes_in_kafka() != before:
            history.disobeyed.append("changes were published although all slots are paused")
        operators.control(ControlState.RUNNING)
        if world.weather.drains and not history.broken:
            self._drain_one()

    def _is_paused(self) -> bool:
        if self._world.at % _ROUNDS_BETWEEN_SIGHTS:
            return False
        status = self._world.operators.status()
        return status is not None and status.is_paused

    def _changes_in_kafka(self) -> int:
        world = self._world
        return sum(len(list(world.ground.entries(topic))) for topic in world.data_topics)

    def _drain_one(self) -> None:
        """Take a worker away; it ends, and rounds after that start it again."""
        world = self._world
        node = world.random.choice(world.nodes)
        if node.is_alive and node.worker._commands.may_read:
            world.operators.drain(node.name)
            if not self._goes_on_until(
                lambda: not node.is_alive, restarts=False, rounds=_ROUNDS_TO_PAUSE
            ):
                world.history.unhealed.append(f"{node.name} is drained and goes on")

    def _wait_for_the_views(self) -> None:
        """Let every worker read what the others have committed, and go by it for a while."""
        world = self._world
        if not self._goes_on_until(self._is_fleet_known, rounds=_ROUNDS_TO_VIEWS, reads=False):
            names = [node.name for node in world.nodes if self._misses_fleet(node)]
            world.history.unhealed.append(f"without a view of the fleet: {names}")
        self._goes_on_until(lambda: False, rounds=_ROUNDS_OF_VIEWS, reads=False)

    def _is_fleet_known(self) -> bool:
        return not any(self._misses_fleet(node) for node in self._world.nodes)

    def _misses_fleet(self, node) -> bool:
        """Whether a worker does not know the fleet; one without a slot has no use for it."""
        return not node.is_alive or (bool(node.worker.slots) and not node.knows_fleet)

    def _written(self) -> list[Place]:
        return [place for place, log in self._world.broker.logs.items() if log.end]

    def _gaps_are_accepted(self, horizon_us: int) -> bool:
        """Accept what has expired until nothing more of it stops; return whether the run goes on.

        Further stream partitions may stop later, as they wait for those that stopped first.
        """
        world = self._world
        losses = world.checkpoint.losses
        is_uncertain = losses is not None and losses.is_active
        if world.ground.gap_margin_us is None or is_uncertain:
            return False
        if world.weather.progress_versions_meet:
            return False  # heartbeats of version 1 do not say what is stopped
        world.tell("world", "phase", "gaps are accepted")
        for _ in range(_ACCEPTANCES_MAX):
            self._leaves_stopped = True
            self._goes_on_until(
                lambda: (
                    self._is_done(horizon_us)
                    or (world.at % _ROUNDS_BETWEEN_SIGHTS == 0 and bool(expired_tokens(world)))
                )
            )
            self._leaves_stopped = False
            if world.history.broken or not expired_tokens(world):
                break
            gaps, error = self._accept(())
            if isinstance(error, EndedInGap):
                return False
            if error is not None:
                world.history.unhealed.append(f"no gap was accepted: {error}")
                return False
            if world.chance(0.5):
                # As one who has not seen the answer.
                _, error = self._accept(gaps)
                if not isinstance(error, GapNotAccepted):
                    world.history.unhealed.append("a gap was accepted twice")
        for _ in range(_COMMITS_AFTER_GAPS):
            # In batches of their own, which know of the gaps what was stored.
            world.commit()
            world.let_time_pass()
            self._goes_on_until(lambda: False, rounds=_ROUNDS_BETWEEN_COMMITS)
        return True

    def _accept(
        self, gaps: tuple[PartitionGap, ...]
    ) -> tuple[tuple[PartitionGap, ...], TidegateError | None]:
        world = self._world
        for node in (*world.nodes, *world.zombies):
            node.kill()
        process = world.start_accept_gap(gaps=gaps)
        self._goes_on_until(lambda: not process.is_alive, restarts=False)
        if process.is_alive:
            world.history.unhealed.append("an acceptance does not end")
        process.kill()
        world.redrives.clear()
        return process.gaps, process.error

    def _put_back(self) -> None:
        """Put everything back that is parked, while no worker runs; then changes go on."""
        world = self._world
        world.tell("world", "phase", "redrive")
        world.poison.end()
        world.refused_schemas.end()
        for node in (*world.nodes, *world.zombies):
            node.kill()
        self._redrive()
        if world.chance(0.5):
            self._redrive()  # which finds nothing
        for _ in range(_COMMITS_AFTER_REDRIVE):
            world.commit()
            world.let_time_pass()

    def _redrive(self) -> None:
        world = self._world
        world.start_redrive(patience_s=_REDRIVE_PATIENCE_S)
        redrive = world.redrives[-1]
        self._goes_on_until(lambda: not redrive.is_alive, restarts=False)
        if redrive.is_alive:
            world.history.unhealed.append("a redrive does not end")
        elif redrive.error is not None:
            world.history.unhealed.append(f"nothing was put back: {redrive.error}")
        world.history.unhealed += [f"not put back: {reason}" for reason in redrive.left]
        redrive.kill()
        world.redrives.clear()

    def _goes_on_until(
        self,
        is_done: Callable[[], bool],
        *,
        restarts: bool = True,
        reads: bool = True,
        rounds: int = _ROUNDS_MAX,
    ) -> bool:
        world = self._world
        for _ in range(rounds):
            world.at += 1
            world.now_us += _ROUND_US
            self._do_a_round(restarts=restarts, reads=reads)
            if world.at % _ROUNDS_BETWEEN_SIGHTS == 0:
                world.fleet_sights.look()
            if world.history.broken or is_done():
                return True
        return False

    def _wait_for_the_last_worker(self) -> None:
        """Let every worker find out that it cannot go on; nobody starts it a second time."""
        world = self._world
        for node in list(world.nodes):
            if not node.is_alive:
                world.restart(node)
        for _ in range(_STOP_ROUNDS_MAX):
            world.at += 1
            world.now_us += _ROUND_US
            self._do_a_round(restarts=False)
            if not any(node.is_alive for node in (*world.nodes, *world.zombies)):
                return
        alive = [node.name for node in (*world.nodes, *world.zombies) if node.is_alive]
        world.history.survivors += alive

    def _do_a_round(self, *, restarts: bool = True, reads: bool = True) -> None:
        world = self._world
        if restarts and not self._leaves_stopped:
            self._restart_what_stopped()
        for node in list(world.nodes):
            if not node.is_alive and restarts:
                world.restart(node)
        awake = [node for node in world.processes if node.is_alive]
        # By client, not by name: a session ends although a process of that name lives, if that
        # process never joined.
        sessions = {node.client.member_id for node in awake}
        for name, member in list(world.broker.group.members.items()):
            if member.member_id not in sessions:
                world.broker.group.expire(name)
        # A process that is gone began the others, perhaps one of a name that lives again.
        handles = [node.publisher.handle for node in awake if node.publisher.handle]
        world.broker.time_out_all_but(handles)
        for node in awake:
            node.client.work()
            for _ in range(_PAUSES):
                if node.is_alive:
                    node.step()
        world.broker.group.complete()
        world.broker.settle()
        for _ in range(4 * reads):
            world.step_consumer()

    def _held_up(self, horizon_us: int) -> list[str]:
        world = self._world
        start_us, end_us = world.history.start_us, world.history.end_us
        finished = {finish.token for finish in world.history.finishes}
        reached = {
            token: partition.published.watermark_us
            for node in world.nodes
            for slot in node.worker.slots.values()
            for token, partition in slot.tokens.items()
        }
        return [
            part.token
            for part in world.spanner.unhindered(start_us, world.refused)
            if part.token not in finished
            and reached.get(part.token, 0) < horizon_us
            and (end_us is None or part.start_us <= end_us)
        ]

    def _restart_what_stopped(self) -> None:
        """Drain the workers with stopped stream partitions, as an operator would."""
        world = self._world
        for node in world.nodes:
            is_due = node.is_alive and node.worker.stopped and not world.refused
            if is_due or world.is_stopped_for_a_record(node):
                node.drain()

    def _horizon_us(self) -> int:
        world = self._world
        last_us = max((c.commit_timestamp_us for c in world.spanner.committed), default=0)
        end_us = world.history.end_us
        return last_us if end_us is None else end_us

    def _is_done(self, horizon_us: int) -> bool:
        world = self._world
        claims = world.history.claims
        if world.ground.consumer_has_ended:
            return self._has_settled() and not self._held_up(horizon_us)
        if not claims or claims[-1].watermark_us < horizon_us:
            return False
        if not self._has_settled():
            return False
        batch = claims[-1].batch
        return world.checkpoint.committed >= batch and self._has_mirrored(batch)

    def _has_mirrored(self, batch: int) -> bool:
        """Whether the mirrors have every release; a stream that has ended has no batch to wait for.

        What they then lack they lack for good: `mirror_cadence` finds it.
        """
        state = self._world.checkpoint.read(state_file(batch)) or {}
        has_mirror = "mirror" in state.get("sinks", ())
        return (has_mirror and state["mirror_release"] is None) or state["stream_has_ended"]

    def _has_settled(self) -> bool:
        world = self._world
        is_settled = all(node.client.is_settled for node in world.nodes)
        return is_settled and not world.broker.group.unassigned

    def _say_what_is_missing(self, horizon_us: int) -> None:
        history = self._world.history
        reached = history.claims[-1].watermark_us if history.claims else None
        if reached is None or reached < horizon_us:
            behind = None if reached is None else horizon_us - reached
            history.unhealed.append(f"the watermark is {behind} µs behind the last commit")
        orphans = sorted(self._world.broker.group.unassigned)
        if orphans:
            history.unhealed.append(f"slots are unassigned: {orphans}")
        history.unhealed += [
            f"{node.name} does not come to rest in the group: {node.client.state.value}"
            for node in self._world.nodes
            if not node.client.is_settled
        ]
