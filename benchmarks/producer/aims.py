"""What figures have to be, and which of this checkout's are beyond that.

Most figures are compared in every round: an aim of latency, memory or threads that one round in
five misses is missed.  Of CPU time the median is compared: what else runs on the machine takes
caches and clock rate from single rounds, and the aim is about the program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Aim:
    """What one figure has to be."""

    figure: str
    kind: Literal["at most", "below", "at least"]
    value: float
    name: str = ""
    """The measurement that has the aim; empty: each one with such a figure."""
    is_of_cpu: bool = False
    """Whether the median of the rounds is compared, and not each of them."""
    needs_accelerator: bool = False
    """Whether it applies with the accelerator only; without it there is none for this figure."""

    def is_of(self, name: str) -> bool:
        """Whether a measurement has this aim."""
        return not self.name or self.name == name

    def missed_by(self, found: Mapping[str, float]) -> float | None:
        """Return what is compared of a figure's rounds if it is beyond the aim, else None."""
        worst = "min" if self.kind == "at least" else "max"
        compared = found["median" if self.is_of_cpu else worst]
        match self.kind:
            case "at most":
                is_missed = compared > self.value
            case "below":
                is_missed = compared >= self.value
            case "at least":
                is_missed = compared < self.value
        return compared if is_missed else None


def _throughput(name: str, value: float) -> Aim:
    return Aim("per_cpu_s", "at least", value, name, is_of_cpu=True, needs_accelerator=True)


_PARKED = ("kafka, parked", "kafka, parked, too large", "kafka, parked, table refused")
_IDLE = "kafka, idle, 1000 stream partitions"

AIMS = (
    _throughput("kafka, 20 x 1", 25_000),
    _throughput("kafka, 20 x 10", 40_000),
    _throughput("kafka, 1 x 1", 9_000),
    Aim("p50_ms", "at most", 200, "kafka, latency"),
    Aim("p99_ms", "below", 500, "kafka, latency"),
    Aim("max_ms", "below", 1_000, "kafka, split"),
    *(Aim("extra_p99_ms", "at most", 2_000, name) for name in _PARKED),
    Aim("threads", "at most", 40, _IDLE),
    Aim("core_percent", "below", 30, _IDLE, is_of_cpu=True),
    Aim("above_base_budgets", "at most", 1.25),
    Aim("most_of_tenth", "at most", 1.25),
    Aim("most_of_fewer", "at most", 1.25),
    Aim("messages_of_formula", "at most", 1.1),
    Aim("bytes_of_formula", "at most", 1.1),
    Aim("memory_of_formula", "at most", 1.1),
    Aim("heartbeats_of_bound", "at most", 1.0),
    Aim("changes_of_bound", "at most", 1.0),
    Aim("many_of_few", "at most", 2.0, is_of_cpu=True),
    Aim("skip_us", "at most", 5.0, is_of_cpu=True),
)


def misses(measured: list[dict[str, Any]], *, is_accelerated: bool) -> list[str]:
    """Return a line for each figure of this checkout that is beyond its aim.

    `is_accelerated` says whether the accelerator was used.
    """
    lines = []
    for one in measured:
        for aim in AIMS:
            found = one["this"].get(aim.figure) if aim.is_of(one["name"]) else None
            if found is None or (aim.needs_accelerator and not is_accelerated):
                continue
            compared = aim.missed_by(found)
            if compared is not None:
                which = "the median" if aim.is_of_cpu else "the worst round"
                lines.append(
                    f"{one['name']}: {aim.figure} is {compared:,} ({which}), "
                    f"and the aim is {aim.kind} {aim.value:,}"
                )
    return lines
