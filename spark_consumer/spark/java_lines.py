"""The lines that Spark's JVM writes to standard error, where commands that answer log too.

While Spark starts they are those of Apache Ivy, hundreds at the first start, and warnings about the
machine.  They are shown if it does not start.
"""

from __future__ import annotations

import os
import re
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

_STANDARD_ERROR = 2
_LINES_MAX = 300
_OF_LOGS = re.compile(rb"\{|\x1b\[|\d{4}-\d\d-")
"""How a line of our log begins: with JSON, or for people with the date, in colour or not."""

_LAST_LINES_S = 2.0
"""How long the last lines of a JVM that dies are waited for; one that lives on writes no end."""


@contextmanager
def held_back() -> Iterator[None]:
    """Hold back what a JVM that starts within the block writes until the block has ended.

    If the block raises, the last lines are shown.  What the JVM writes later is passed on.  Our own
    lines, of other threads, are passed on at once.
    """
    try:
        own = os.dup(_STANDARD_ERROR)
    except OSError:  # closed
        yield
        return
    read, write = os.pipe()
    os.dup2(write, _STANDARD_ERROR)
    os.close(write)
    lines, has_ended = _Lines(own), threading.Event()

    def copy() -> None:
        lines.copy(read)
        has_ended.wait()
        os.close(own)

    copying = threading.Thread(target=copy, name="java-lines", daemon=True)
    copying.start()
    try:
        yield
    except BaseException:
        os.dup2(own, _STANDARD_ERROR)
        lines.wait(_LAST_LINES_S)
        lines.show()
        raise
    else:
        os.dup2(own, _STANDARD_ERROR)
        lines.drop()
    finally:
        has_ended.set()


class _Lines:
    """Lines on the way to a file descriptor."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._held: deque[bytes] | None = deque(maxlen=_LINES_MAX)
        self._has_all = threading.Event()

    def copy(self, source: int) -> None:
        """Read lines to the end of a file descriptor, and pass them on or hold them."""
        with os.fdopen(source, "rb") as lines:
            for line in lines:
                with self._lock:
                    if self._held is None or _OF_LOGS.match(line):
                        self._write(line)
                    else:
                        self._held.append(line)
        self._has_all.set()

    def wait(self, seconds: float) -> None:
        """Block until the end has been read, for some seconds at most."""
        self._has_all.wait(seconds)

    def show(self) -> None:
        """Pass on the held lines, and all later ones."""
        with self._lock:
            for line in self._held or ():
                self._write(line)
            self._held = None

    def drop(self) -> None:
        """Forget the held lines, and pass on all later ones."""
        with self._lock:
            self._held = None

    def _write(self, line: bytes) -> None:
        while line:
            line = line[os.write(self._target, line) :]
