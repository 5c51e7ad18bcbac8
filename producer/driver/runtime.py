"""Clocks, conditions and tasks of the operating system (`ports`).

An open query is a task and needs no thread.  Readers run through the port `Tasks`, and the loop
waits through `Threads` and `Condition`, so that the simulation can schedule them itself.  A task
yields only where it awaits; calls that may block run in another thread (`in_thread`).  The loop
never holds a lock while it calls another port.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar

from tidegate.producer.core.events import Now
from tidegate.producer.ports import Clock, Condition, Signal

_NS_PER_US = 1_000


class SystemClock:
    """The clocks of the operating system."""

    def monotonic_us(self) -> int:
        """Return microseconds since an arbitrary moment, such as the machine's start."""
        return time.monotonic_ns() // _NS_PER_US

    def wall_us(self) -> int:
        """Return microseconds since 1970."""
        return time.time_ns() // _NS_PER_US

    def sleep(self, seconds: float) -> None:
        """Block the calling thread."""
        time.sleep(seconds)


def now_on(clock: Clock) -> Now:
    """Read both clocks."""
    return Now(clock.monotonic_us(), clock.wall_us())


class SystemThreads:
    """Threads of the operating system."""

    def condition(self) -> Condition:
        """Return a `threading.Condition`."""
        return threading.Condition()


_T = TypeVar("_T")
_Run: TypeAlias = "Callable[[], Coroutine[Any, Any, _T]]"

_BLOCKING_MAX = 4
"""Number of concurrent calls that block; calls for one table wait for each other anyway."""
_END_PATIENCE_S = 5.0


class TaskThread:
    """Tasks on an asyncio loop in a daemon thread, which starts with the first task.

    `close` ends it; a call that is still blocked continues in its daemon thread, without effect.
    """

    def __init__(self, *, name: str = "readers") -> None:
        self._name = name
        self._loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._blocking = asyncio.Semaphore(_BLOCKING_MAX)

    def start(self, run: _Run[None], *, name: str) -> None:
        """Start a task; a task that is started after `close` never runs."""
        with suppress(RuntimeError):  # closed
            self._running().call_soon_threadsafe(self._create, run, name)

    def signal(self) -> Signal:
        """Return a signal on this loop."""
        return _LoopSignal(self._loop)

    async def in_thread(self, call: Callable[[], _T]) -> _T:
        """Run `call` on a daemon thread, so that the process can end although a call hangs."""
        outcome: asyncio.Future[_T] = self._loop.create_future()

        def tell(note: Callable[[Any], None], result: Any) -> None:
            if not outcome.done():  # the task was cancelled
                note(result)

        def work() -> None:
            note: Callable[[Any], None] = outcome.set_result
            result: Any
            try:
                result = call()
            except Exception as error:  # noqa: BLE001 - raised in the task that waits
                note, result = outcome.set_exception, error
            with suppress(RuntimeError):  # closed
                self._loop.call_soon_threadsafe(tell, note, result)

        async with self._blocking:
            threading.Thread(target=work, name=f"{self._name}-blocking", daemon=True).start()
            return await outcome

    def run(self, run: _Run[_T]) -> _T:
        """Run one task and block until it ends; not from the thread of the tasks."""
        return asyncio.run_coroutine_threadsafe(run(), self._running()).result()

    def close(self) -> None:
        """Cancel all tasks and end the thread; blocks for at most some seconds."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        if self._thread is None:
            self._loop.close()
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(2 * _END_PATIENCE_S)

    # ------------------------------------------------------------ inside

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
                self._thread.start()
        return self._loop

    def _create(self, run: _Run[None], name: str) -> None:
        task = self._loop.create_task(run(), name=name)
        self._tasks.add(task)  # the loop itself keeps no strong reference
        task.add_done_callback(self._tasks.discard)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            if tasks:
                self._loop.run_until_complete(asyncio.wait(tasks, timeout=_END_PATIENCE_S))
            self._loop.close()


class _LoopSignal:
    """A signal of tasks on one asyncio loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._event = asyncio.Event()

    async def wait_for(self, predicate: Callable[[], bool], timeout_s: float | None = None) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                while not predicate():
                    # A change is notified after it was made, on this loop: none is missed here.
                    self._event.clear()
                    await self._event.wait()
        except TimeoutError:
            return predicate()
        return True

    def notify(self) -> None:
        with suppress(RuntimeError):  # closed
            self._loop.call_soon_threadsafe(self._event.set)
