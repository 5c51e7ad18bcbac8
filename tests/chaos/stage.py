"""What every run does with its programs: wait and keep them running, break them, let them heal."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from tests.chaos.breaker import Breaker
from tests.chaos.fleet import Fleet
from tests.chaos.patience import Patience
from tidegate.local_stack.demo.view import RunView
from tidegate.local_stack.errors import PartFailedError

_LATENESS_S = 600.0
"""How long the faults may take beyond the time that was asked for."""

_HEAL_DEADLINE_S = 180.0
_CALM_S = 5.0
_POLL_S = 0.1
_FIGURES_EVERY_S = 1.0


@dataclass(slots=True)
class Stage:
    """The programs of one run, and what breaks them."""

    fleet: Fleet
    breaker: Breaker
    view: RunView
    look: Callable[[], None]
    """Called about ten times a second while this waits; what it raises ends the run."""
    figures: Callable[[], Mapping[str, object]]
    """What the view shows while this waits."""
    _figures_at: float = 0.0

    def wait(self, condition: Callable[[], bool], *, what: str, deadline_s: float = 90.0) -> None:
        """Wait, and meanwhile start again what ends; raises PartFailedError at the deadline."""
        patience = Patience(deadline_s)
        while not condition():
            self.fleet.watch()
            self.look()
            if patience.is_over:
                raise PartFailedError(f"{what}: not reached within {deadline_s:.0f} s")
            if self.view.seconds - self._figures_at >= _FIGURES_EVERY_S:
                self._figures_at = self.view.seconds
                self.view.figures(**self.figures())
            time.sleep(_POLL_S)

    def break_for(
        self,
        seconds: float,
        *,
        lanes: Sequence[Callable[[], None]],
        beside: Sequence[Callable[[], None]],
        end: Callable[[], None],
    ) -> None:
        """Carry out all lanes beside each other, for this long; returns when the last is over.

        What runs `beside` them goes on until `end` is called.  Raises what any of them raises.
        """
        began_s = self.view.seconds
        with ThreadPoolExecutor(len(lanes) + len(beside), thread_name_prefix="chaos") as pool:
            others = [pool.submit(one) for one in beside]
            running = [pool.submit(lane) for lane in lanes]
            late_s = began_s + seconds + _LATENESS_S
            try:
                self.wait(
                    lambda: (
                        any(one.done() and one.exception() for one in (*running, *others))
                        or (
                            all(one.done() for one in running)
                            and self.view.seconds > began_s + seconds
                        )
                        or self.view.seconds > late_s
                    ),
                    what="the faults to be over",
                    deadline_s=float("inf"),
                )
            except BaseException:
                self.breaker.abandoned.set()
                raise
            finally:
                end()
            if not all(one.done() for one in running):
                self.breaker.unhealed.append("the faults were not over in time")
                self.breaker.abandoned.set()
        self.breaker.abandoned.clear()
        _raise_first((*running, *others))

    def heal(self, names: Sequence[str]) -> None:
        """Wait until these programs have gone through a cycle, and a calm moment more."""
        with ThreadPoolExecutor(len(names), thread_name_prefix="heal") as pool:
            cycles = [pool.submit(self.breaker.await_cycle, name) for name in names]
            try:
                self.wait(
                    lambda: all(cycle.done() for cycle in cycles),
                    what="all programs to work",
                    deadline_s=_HEAL_DEADLINE_S,
                )
            except BaseException:
                self.breaker.abandoned.set()
                raise
        _raise_first(cycles)
        calm_until_s = self.view.seconds + _CALM_S
        self.wait(lambda: self.view.seconds > calm_until_s, what="a calm end")


def _raise_first(futures: Sequence[Future[object]]) -> None:
    for future in futures:
        future.result()
