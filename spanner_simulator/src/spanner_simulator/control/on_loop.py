"""Calls from any thread to the simulator's event loop, where all verbs run.

A verb runs between two calls of clients, so a split is as atomic as a commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TypeVar

from spanner_simulator.server.host import Host

_T = TypeVar("_T")
# Far longer than any verb takes: a loop that does not answer has failed.
_TIMEOUT_S = 300


class OnLoop:
    """Base of the verbs; usable from `attach` to `detach`, from any thread but the loop's own."""

    def __init__(self) -> None:
        self._attached: tuple[Host, asyncio.AbstractEventLoop] | None = None

    def attach(self, host: Host, loop: asyncio.AbstractEventLoop) -> None:
        """The simulator runs from now on."""
        self._attached = host, loop

    def detach(self) -> None:
        """The simulator is about to end."""
        self._attached = None

    @property
    def is_running(self) -> bool:
        """Whether verbs can be called."""
        return self._attached is not None

    def _run(self, act: Callable[[Host], _T]) -> _T:
        async def run(host: Host) -> _T:
            return act(host)

        return self._run_coroutine(run)

    def _run_coroutine(self, act: Callable[[Host], Coroutine[None, None, _T]]) -> _T:
        if self._attached is None:
            raise RuntimeError("the simulator is not running: use it in a with statement")
        host, loop = self._attached
        if _running_loop() is loop:
            raise RuntimeError(
                "a verb waits for the simulator, so its own event loop cannot call it"
            )
        return asyncio.run_coroutine_threadsafe(act(host), loop).result(_TIMEOUT_S)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
