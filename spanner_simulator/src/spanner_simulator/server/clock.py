"""The time of a simulator: the wall clock's, or a virtual one that jumps and can stand still.

Everything that waits for simulated time waits here, so that a jump wakes it.  Timers run in the
order in which they fall due, each at its own instant even inside a jump; callers of `wait` see only
the end of a jump.  Belongs to one event loop.  Commits advance a frozen clock (`reach`), because
nothing may be committed after now.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass, field

# A jump of a year with an hourly timer stays below; churn over such a time would never end.
_TIMERS_PER_JUMP_MAX = 20_000


def wall_clock_us() -> int:
    """Microseconds since the epoch."""
    return time.time_ns() // 1000


@dataclass(order=True, slots=True)
class Timer:
    """An action at `at_us`; timers of one instant keep the order in which they were set."""

    at_us: int
    number: int
    act: Callable[[], None] = field(compare=False)
    is_cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        """Do not act; without effect afterwards. The clock may keep the timer until its time."""
        self.is_cancelled = True
        # Objects of the action can be freed now.
        self.act = _do_nothing


def _do_nothing() -> None:
    """The action of a cancelled timer."""


class Clock:
    """The simulator's clock; `source` is the real clock while it is not frozen."""

    def __init__(
        self, source: Callable[[], int] = wall_clock_us, *, frozen_at_us: int | None = None
    ) -> None:
        """`frozen_at_us`: start frozen, at this time."""
        self._source = source
        self._ahead_us = 0
        self._frozen_us = self._frozen_at_us = frozen_at_us
        self._waits: dict[asyncio.Timeout, int] = {}
        self._timers: list[Timer] = []
        self._timers_set = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._alarm: asyncio.TimerHandle | None = None

    # -- what time it is

    @property
    def is_frozen(self) -> bool:
        """Whether time stands still."""
        return self._frozen_us is not None

    @property
    def ahead_us(self) -> int | None:
        """How far it runs ahead of its source; None while it is frozen."""
        return self._ahead_us if self._frozen_us is None else None

    def running_us(self, ahead_us: int) -> int:
        """The time of a clock that runs this far ahead of the source."""
        return self._source() + ahead_us

    def now_us(self) -> int:
        """Microseconds since the epoch, in simulated time."""
        if self._frozen_us is not None:
            return self._frozen_us
        return self._source() + self._ahead_us

    def advance(self, by_us: int) -> int:
        """Jump ahead and return the new time.  Timers on the way run, each at its own instant.

        After very many of them the rest of the way is one step, and the timers that fell due on it
        run soon.
        """
        if by_us < 0:
            raise ValueError("a clock does not go back")
        target_us = self.now_us() + by_us
        try:
            for _ in range(_TIMERS_PER_JUMP_MAX):
                if not self._timers or self._timers[0].at_us > target_us:
                    break
                timer = heapq.heappop(self._timers)
                if not timer.is_cancelled:
                    self._set(max(self.now_us(), timer.at_us))
                    timer.act()
        finally:
            # Also if a timer fails: then the others run soon, as they would have otherwise.
            self._set(max(self.now_us(), target_us))
            self._rearm()
        return self.now_us()

    def freeze(self) -> int:
        """Freeze the clock; return its time."""
        self._frozen_us = self.now_us()
        self._rearm()
        return self._frozen_us

    def thaw(self) -> int:
        """Let the clock run from its time; return that time."""
        if self._frozen_us is not None:
            self._ahead_us = self._frozen_us - self._source()
            self._frozen_us = None
            self._rearm()
        return self.now_us()

    def reach(self, at_us: int) -> None:
        """Advance a frozen clock to the time of an event.

        Runs no timer itself, because the caller may be in the middle of a commit.
        """
        if self._frozen_us is not None and self._frozen_us < at_us:
            self._frozen_us = at_us
            self._rearm()

    def _set(self, at_us: int) -> None:
        if self._frozen_us is not None:
            self._frozen_us = at_us
        else:
            self._ahead_us = at_us - self._source()

    # -- waiting

    async def sleep_until(self, at_us: int) -> None:
        """Return when it is `at_us` or later; at once if it is already."""
        await self.wait(asyncio.Event(), at_us)

    async def wait(self, event: asyncio.Event, until_us: int | None) -> None:
        """Return when the event is set or the time has come; None: wait for the event only."""
        if until_us is None:
            await event.wait()
            return
        while not event.is_set() and self.now_us() < until_us:
            try:
                async with asyncio.timeout_at(self._when(until_us)) as timeout:
                    self._waits[timeout] = until_us
                    try:
                        await event.wait()
                    finally:
                        del self._waits[timeout]
            except TimeoutError:
                # A jump occurred, or the event loop's clock runs ahead of the source: check again.
                continue

    def _when(self, at_us: int) -> float | None:
        """The time on the event loop's clock; longer overdue times come first."""
        ahead_us = at_us - self.now_us()
        if self._frozen_us is not None and ahead_us > 0:
            return None
        return asyncio.get_running_loop().time() + ahead_us / 1e6

    # -- timers

    def start(self) -> None:
        """Bind to the running event loop; until then, timers run in `advance` only."""
        self._loop = asyncio.get_running_loop()
        self._rearm()

    def reset(self) -> None:
        """Remove all timers, and show the time that a new clock would."""
        self._timers.clear()
        self._ahead_us, self._frozen_us = 0, self._frozen_at_us
        self._rearm()

    def close(self) -> None:
        """Remove all timers and the event loop."""
        self._timers.clear()
        self._rearm()
        self._loop = None

    def call_at(self, at_us: int, act: Callable[[], None]) -> Timer:
        """Call `act` at this time, never before this call has returned."""
        self._timers_set += 1
        timer = Timer(at_us, self._timers_set, act)
        heapq.heappush(self._timers, timer)
        self._rearm_alarm()
        return timer

    def _rearm(self) -> None:
        self._rearm_alarm()
        for timeout, until_us in sorted(self._waits.items(), key=lambda wait: wait[1]):
            if not timeout.expired():
                timeout.reschedule(self._when(until_us))

    def _rearm_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._loop is not None and self._timers:
            at_us = self._timers[0].at_us
            ahead_us = at_us - self.now_us()
            if self._frozen_us is None or ahead_us <= 0:
                self._alarm = self._loop.call_later(max(0, ahead_us) / 1e6, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        now_us = self.now_us()
        try:
            while self._timers and self._timers[0].at_us <= now_us:
                timer = heapq.heappop(self._timers)
                if not timer.is_cancelled:
                    timer.act()
        finally:
            self._rearm_alarm()
