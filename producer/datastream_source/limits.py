"""How long a Datastream source looks for files, and how late events may be."""

from __future__ import annotations

from dataclasses import dataclass

US_PER_MINUTE = 60_000_000


@dataclass(frozen=True, slots=True)
class SourceLimits:
    """The settings of a source that concern time and memory."""

    open_minutes: int = 10
    """A minute's folder may get files for so long after its end; copies of events are recognised
    within it."""
    lateness_us: int = 600_000_000
    """How far the watermark stays behind the files that were read."""
    late_hours: int = 24
    """Files that come later than `open_minutes` are looked for in folders of so many hours."""
    uuids_max: int = 1_000_000
    """Identifiers kept for one object; beyond them those of its oldest files are forgotten."""

    @property
    def open_us(self) -> int:
        """`open_minutes` in microseconds."""
        return self.open_minutes * US_PER_MINUTE

    @property
    def late_minutes(self) -> int:
        """`late_hours` in minutes."""
        return self.late_hours * 60
