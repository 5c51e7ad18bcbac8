"""Keeps the log lines of simulated workers off the screen: a story tells more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from tidegate.producer.datastream_source import object_query
from tidegate.producer.driver import effect_runner, loop
from tidegate.producer.translation import refreshing

__all__ = ["silenced"]


class _NoLog:
    def debug(self, event: str, **fields: object) -> None:
        pass

    info = warning = error = debug


_NO_LOG = _NoLog()


@contextmanager
def silenced() -> Iterator[None]:
    with ExitStack() as stack:
        for module in (effect_runner, loop, refreshing, object_query):
            stack.enter_context(patch.object(module, "_log", _NO_LOG))
        yield
