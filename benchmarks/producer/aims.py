"""What figures may be at most; the median of the rounds is compared."""

from __future__ import annotations

from typing import Any

__all__ = ["AIMS", "misses"]

AIMS = {
    "messages_of_formula": 1.1,
    "bytes_of_formula": 1.1,
    "heartbeats_of_bound": 1.0,
    "changes_of_bound": 1.0,
    "many_of_few": 2.0,
    "skip_us": 5.0,
    "extra_p99_ms": 2_000.0,
    "most_of_tenth": 1.25,
    "most_of_fewer": 1.25,
}
"""By the figure's name."""


def misses(measured: list[dict[str, Any]]) -> list[str]:
    """Return a line for each figure of this checkout that is beyond its aim."""
    return [
        f"{one['name']}: {figure} is {found['median']:,}, and {AIMS[figure]:,} is the aim"
        for one in measured
        for figure, found in one["this"].items()
        if figure in AIMS and found["median"] > AIMS[figure]
    ]
