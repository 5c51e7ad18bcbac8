"""The threads and tasks of one simulated process, each a greenlet, and its clocks.

Production code runs in them unchanged.  Wherever it would block it pauses instead, and the world
decides what happens next: another thread, another process, a fault, or a kill, which ends every
thread where it stands.  A paused thread changes nothing, so that a run depends on its seed alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar
from unittest.mock import patch

from greenlet import GreenletExit, getcurrent, greenlet

from tidegate.producer.datastream import object_query
from tidegate.producer.driver import effect_runner, loop
from tidegate.producer.translation import table_refresh

_T = TypeVar("_T")

_PAUSES_UNTIL_NOTICED = 30
"""A reader that is stopped while it translates asks the registry to the end first."""


class ProcessClock:
    """A process's clocks: the monotonic one starts anywhere, the wall clock may be wrong."""

    def __init__(self, world, name: str, process: Process) -> None:
        self._world, self._name, self._process = world, name, process
        self._started_us = world.now_us - world.random.randrange(10**12)

    def monotonic_us(self) -> int:
        return self._world.now_us - self._started_us

    def wall_us(self) -> int:
        return self._world.now_us + self._world.skew_us(self._name)

    def sleep(self, seconds: float) -> None:
        until_us = self.monotonic_us() + seconds * 1_000_000
        self._process.pause()
        while self.monotonic_us() < until_us:
            self._process.pause()


class ProcessThread:
    def __init__(self, process: Process, run: Callable[[], Any], name: str) -> None:
        self.name = name
        self._greenlet = greenlet(lambda: _to_the_end(run), parent=process.hub)

    def go_on(self) -> None:
        self._greenlet.switch()

    def kill(self) -> None:
        self._greenlet.throw(GreenletExit)

    def is_alive(self) -> bool:
        return not self._greenlet.dead


def _to_the_end(run: Callable[[], Any]) -> None:
    """Run a thread, or a task, all of whose waiting is a pause of its process."""
    task = run()
    if inspect.iscoroutine(task):
        try:
            task.send(None)
        except StopIteration:
            return
        raise AssertionError("a task waits for something outside of its process")


class _Condition:
    """A condition in a process whose threads change places only at pauses: it needs no lock."""

    def __init__(self, process: Process) -> None:
        self.wait_for = process.wait_for

    def __enter__(self) -> bool:
        return True

    def __exit__(self, *_: object) -> None:
        pass

    def notify_all(self) -> None:
        pass


class _Signal:
    """What a task waits with: it asks again after each pause."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def wait_for(self, predicate: Callable[[], bool], timeout_s: float | None = None) -> bool:
        return self._process.wait_for(predicate, timeout_s)

    def notify(self) -> None:
        pass


class Process:
    """Implements `ports.Threads` and `ports.Tasks`; made outside of any thread."""

    def __init__(self, world, name: str) -> None:
        self.hub = getcurrent()
        self.is_alive = True
        self.clock = ProcessClock(world, name, self)
        self.threads: list[ProcessThread] = []

    def start(
        self, run: Callable[[], Coroutine[Any, Any, None] | None], *, name: str
    ) -> ProcessThread:
        self.threads = [thread for thread in self.threads if thread.is_alive()]
        self.threads.append(ProcessThread(self, run, name))
        return self.threads[-1]

    def condition(self) -> _Condition:
        return _Condition(self)

    def signal(self) -> _Signal:
        return _Signal(self)

    async def in_thread(self, call: Callable[[], _T]) -> _T:
        return call()  # what blocks pauses

    def pause(self) -> None:
        """Let the world go on; ends the thread if the process was killed meanwhile."""
        if not self.is_alive:
            raise GreenletExit
        self.hub.switch()
        if not self.is_alive:
            raise GreenletExit

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        until_us = None if timeout is None else self.clock.monotonic_us() + timeout * 1_000_000
        while not predicate():
            if until_us is not None and self.clock.monotonic_us() >= until_us:
                return False
            self.pause()
        return True

    def settle(self) -> None:
        """Let all threads but the first notice what has just changed; called by the world."""
        for _ in range(_PAUSES_UNTIL_NOTICED):
            for thread in self.threads[1:]:
                if thread.is_alive():
                    thread.go_on()

    def kill(self) -> None:
        self.is_alive = False
        for thread in self.threads:
            if thread.is_alive():
                thread.kill()
        self.threads.clear()


class _NoLog:
    def debug(self, event: str, **fields: object) -> None:
        pass

    info = warning = error = debug


_NO_LOG = _NoLog()


@contextmanager
def silenced() -> Iterator[None]:
    with ExitStack() as stack:
        for module in (effect_runner, loop, table_refresh, object_query):
            stack.enter_context(patch.object(module, "_log", _NO_LOG))
        yield
