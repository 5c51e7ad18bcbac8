"""The lag and the rate of a stream over the last hour, or since the console started."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.schemas.instants import US_PER_SECOND

KEPT_US = 3_600 * US_PER_SECOND


@dataclass(frozen=True, slots=True)
class Sample:
    """A stream at one moment."""

    at_us: int
    lag_s: float | None
    """The lag of its watermark; None while it is unknown."""
    changes_a_second: float | None
    """Since the sample before; None in the first one."""


class History:
    """Samples of one epoch, the oldest first; one thread adds, any may read `samples`."""

    def __init__(self) -> None:
        """Start without samples."""
        self.samples: tuple[Sample, ...] = ()
        self._epoch = ""

    def add(self, sample: Sample, *, epoch: str) -> None:
        """Add the newest sample; drop those of another epoch, or older than an hour."""
        kept = self.samples if epoch == self._epoch else ()
        since_us = sample.at_us - KEPT_US
        self._epoch = epoch
        self.samples = (*(one for one in kept if one.at_us > since_us), sample)
