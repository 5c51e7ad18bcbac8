"""The operator's accept-gap: one process that goes on behind what has expired, over the models.

The production driver and core run in it, as `commands.accept_gap` puts them together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.history import AcceptedGap
from tests.simulation.node import Node, WatchedCore
from tidegate.lineage.fleet_view import FleetView
from tidegate.lineage.frontier import ProgressRow
from tidegate.lineage.stop_reason import is_expired
from tidegate.producer.core.accepted_gaps import GapAcceptingWorker
from tidegate.producer.core.worker import Worker
from tidegate.producer.driver.gap_acceptor import GapAcceptor, find_gap
from tidegate.producer.errors import EndedInGap, GapNotAccepted
from tidegate.producer.memory.log import TOMBSTONE
from tidegate.schemas.errors import TidegateError
from tidegate.schemas.progress import PartitionGap, TokenSnapshot

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from tests.simulation.world import World

__all__ = ["NAME", "AcceptGap", "expired_tokens"]

NAME = "accept-gap"
_PATIENCE_S = 60.0


def expired_tokens(world: World) -> list[TokenSnapshot]:
    """Return what heartbeats call stopped by an expired position, as `status` reads them."""
    started = world.ground.started()
    if started is None:
        return []
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
    found = [
        one
        for slot in view.slots
        for one in (slot.tokens or {}).values()
        if is_expired(one.stopped)
    ]
    return sorted(found, key=lambda one: (one.watermark_us, one.token))


class _WatchedAcceptor(WatchedCore, GapAcceptingWorker):
    """The production core, checked after each event."""


class AcceptGap(Node):
    """One process of it; `error` says how it ended, `gaps` what it has asked for."""

    def __init__(
        self, world: World, *, client_id: str, margin_us: int, gaps: tuple[PartitionGap, ...] = ()
    ) -> None:
        """Accept what is found now, or once more what a former process has found."""
        self._margin_us = margin_us
        self.gaps = gaps
        self.error: TidegateError | None = None
        super().__init__(world, NAME, epoch=client_id, client_id=client_id)

    def new_core(self) -> Worker:
        return self.world.new_worker(self.name, self.epoch, self.identity, kind=_WatchedAcceptor)

    def _run(self) -> None:
        world = self.world
        try:
            self._accept()
        except (GapNotAccepted, EndedInGap) as error:
            self.error = error
            world.exited(self, type(error).__name__)
        except Exception as error:  # noqa: BLE001 - a bug is a finding, not the end of the run
            world.broke(self, f"{type(error).__name__}: {error}")
        else:
            world.exited(self, "gaps accepted")

    def _accept(self) -> None:
        core = self.worker
        assert isinstance(core, GapAcceptingWorker)
        self.gaps = self.gaps or tuple(self._find())
        acceptor = GapAcceptor(self.loop, core, patience_s=_PATIENCE_S, clock=self.process.clock)
        try:
            acceptor.join()
            acceptor.accept(self.gaps)
        finally:
            acceptor.close()

    def _find(self) -> list[PartitionGap]:
        world = self.world
        started: Any = world.ground.started()
        gaps = [
            _result_of(
                find_gap(
                    self._stream, one, margin_us=self._margin_us, end_ns=started.body.end_ns,
                    accepted_by="sim", now_us=world.now_us,
                )
            )
            for one in expired_tokens(world)
        ]  # fmt: skip
        first_us = world.spanner.earliest_us + self._margin_us + 1
        world.history.accepted += [AcceptedGap(gap, first_us) for gap in gaps]
        return gaps


def _result_of(task: Coroutine[Any, Any, PartitionGap]) -> PartitionGap:
    """Run a task whose awaits all give way by themselves."""
    try:
        task.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    raise AssertionError("the task awaits something else")
