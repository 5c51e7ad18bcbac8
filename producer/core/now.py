"""The two times at which an event happened."""

from __future__ import annotations

from typing import NamedTuple


class Now(NamedTuple):
    """One moment on both clocks of a worker, in microseconds.

    Intervals, retries and time-outs compare `monotonic_us`, which never moves backwards.
    `wall_us` is written into records and may step in either direction.
    """

    monotonic_us: int
    """Since an arbitrary moment."""
    wall_us: int
    """Since 1970."""
