"""When workers are added and taken away, and which faults befall them in between.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.chaos.faults import KINDS, Fault, FaultKind, Lane, faults_of

SIZES = (1, 4, 2, 3)
"""How many workers there are, one stage after the other."""

_BEGINS = (0.0, 0.12, 0.5, 0.75)
"""When each stage begins, as a share of the run; the second one is the longest."""

_OF_WORKERS: tuple[FaultKind, ...] = tuple(
    kind for kind, one in KINDS.items() if one.lane == "workers" and kind != "rescale"
)
"""The stages rescale."""
_SERVICES: tuple[Lane, ...] = ("broker", "registry")


@dataclass(frozen=True, slots=True)
class WorkerStage:
    """A size of the fleet, and the faults of its workers while it has that size."""

    begins_s: float
    ends_s: float
    workers: int
    faults: tuple[Fault, ...]


def worker_stages_of(
    seed: int, *, seconds: float, sizes: Sequence[int] = SIZES
) -> list[WorkerStage]:
    """Return the stages of a run; a fault belongs to the stage in which it is due.

    A fault for which its stage has no time left is left out: the next size does not wait for it.
    """
    faults = faults_of(seed, seconds=seconds, only=_OF_WORKERS)["workers"]
    begins = [share * seconds for share in _BEGINS[: len(sizes)]]
    ends = [*begins[1:], seconds]
    return [
        WorkerStage(
            begins_s=begin,
            ends_s=end,
            workers=size,
            faults=tuple(
                replace(fault, must=False) for fault in faults if begin <= fault.at_s < end
            ),
        )
        for begin, end, size in zip(begins, ends, sizes, strict=True)
    ]


def service_faults_of(seed: int, *, seconds: float) -> dict[Lane, tuple[Fault, ...]]:
    """Return when broker and registry go away."""
    plan = faults_of(seed, seconds=seconds)
    return {lane: plan[lane] for lane in _SERVICES}
