"""Which faults befall a run, and when: decided by a seed before anything is started.

Pure.  Faults stand in lanes (workers, consumer, broker, registry) that run beside each other; in a
lane one fault is over before the next begins.  A plan for three minutes or more holds every kind at
least once; those are carried out even when a lane is late, the others only while there is time.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from tidegate.local_stack.demo.conductor import CONSUMER_STEPS, WORKER_STEPS

Lane = Literal["workers", "consumer", "broker", "registry"]
FaultKind = Literal[
    "kill-worker",
    "stop-worker-briefly",
    "stop-worker",
    "stop-worker-in-transaction",
    "replace-stopped-worker",
    "rescale",
    "kill-consumer",
    "stop-consumer",
    "replace-stopped-consumer",
    "restart-broker",
    "crash-broker",
    "restart-registry",
]

SESSION_TIMEOUT_MS = 6_000
"""Short, so that a stop that outlasts it fits a run of minutes several times."""

TRANSACTION_TIMEOUT_MS = 8_000

_EXPIRED_AFTER_S = max(SESSION_TIMEOUT_MS, TRANSACTION_TIMEOUT_MS) / 1_000 + 2.5
"""The broker looks for expired transactions once a second."""


_GAP_S = (3.0, 8.0)
_FIRST_AT_S = {"workers": 3.0, "consumer": 8.0, "broker": 15.0, "registry": 12.0}


@dataclass(frozen=True, slots=True)
class _Habit:
    """What a kind of fault is like."""

    lane: Lane
    takes_s: float
    """About how long it holds its lane, recovery included."""
    stops_s: tuple[float, float] = (0.0, 0.0)
    """How long its victim stands still, between these."""
    steps: tuple[str, ...] = ()
    """Steps to hit it in; none: whatever it does."""


_CONSUMER_STEPS = (
    *CONSUMER_STEPS,
    "sink-iceberg_changelog",
    "sink-iceberg_mirror",
    "sink-transactions",
    "hand-over-changelog_by_key",
    "hand-over-mirror_by_key",
    "sink-datastream_files",
)
_LONG_S = (_EXPIRED_AFTER_S, _EXPIRED_AFTER_S + 3.0)
KINDS: dict[FaultKind, _Habit] = {
    "kill-worker": _Habit("workers", 8.0, steps=WORKER_STEPS),
    "stop-worker-briefly": _Habit("workers", 5.0, (1.0, SESSION_TIMEOUT_MS / 1_000 * 0.6)),
    "stop-worker": _Habit("workers", 17.0, _LONG_S),
    "stop-worker-in-transaction": _Habit("workers", 17.0, _LONG_S, WORKER_STEPS[1:]),
    "replace-stopped-worker": _Habit("workers", 18.0, (4.0, 11.0), WORKER_STEPS),
    # One worker more, or one less.
    "rescale": _Habit("workers", 6.0),
    "kill-consumer": _Habit("consumer", 35.0, steps=_CONSUMER_STEPS),
    "stop-consumer": _Habit("consumer", 12.0, (2.0, 9.0)),
    "replace-stopped-consumer": _Habit("consumer", 50.0, steps=_CONSUMER_STEPS[1:]),
    "restart-broker": _Habit("broker", 20.0, (0.0, 2.0)),
    "crash-broker": _Habit("broker", 20.0, (0.0, 2.0)),
    "restart-registry": _Habit("registry", 15.0, (0.0, 4.0)),
}
LANES: tuple[Lane, ...] = ("workers", "consumer", "broker", "registry")
_SPREAD: tuple[Lane, ...] = ("broker", "registry")
"""Over the whole run: between two of them something must have been delivered."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One planned fault."""

    at_s: float
    """Seconds since the faults began; not before."""
    kind: FaultKind
    victim: int
    """Which worker; taken modulo their number."""
    step: str
    """Step of its cycle to hit it in; empty for any."""
    stop_s: float
    """How long it stands still, where it does."""
    must: bool
    """Whether it is carried out however late the lane is."""

    @property
    def name(self) -> str:
        """The kind, and the step aimed at."""
        return f"{self.kind} in {self.step}" if self.step else self.kind


def faults_of(
    seed: int, *, seconds: float, only: Collection[FaultKind] = (), pause_s: float = 0.0
) -> dict[Lane, tuple[Fault, ...]]:
    """Return every lane's faults in the order of their instants; `only` leaves other kinds out.

    Between two faults of a lane are some seconds, and `pause_s` more.
    """
    wanted = only or KINDS.keys()
    return {
        lane: tuple(_lane(seed, lane, seconds=seconds, wanted=wanted, pause_s=pause_s))
        for lane in LANES
    }


def _lane(
    seed: int, lane: Lane, *, seconds: float, wanted: Collection[FaultKind], pause_s: float
) -> list[Fault]:
    chance = random.Random(f"{seed}/faults/{lane}")
    kinds = [kind for kind, habit in KINDS.items() if habit.lane == lane and kind in wanted]
    steps: dict[FaultKind, list[str]] = {kind: [] for kind in kinds}
    everything_once = seconds >= 180
    faults: list[Fault] = []
    queue: list[FaultKind] = []
    at_s = _FIRST_AT_S[lane] * chance.uniform(0.7, 1.5)
    while kinds:
        if not queue:
            queue = list(kinds)
            chance.shuffle(queue)
        kind = queue.pop(0)
        habit = KINDS[kind]
        must = not faults or (everything_once and len(faults) < len(kinds))
        if at_s + habit.takes_s > seconds and not must:
            break
        faults.append(
            Fault(
                at_s=round(at_s, 1),
                kind=kind,
                victim=chance.randrange(1_000),
                step=_next_step(steps[kind], habit.steps, chance),
                stop_s=round(chance.uniform(*habit.stops_s), 1),
                must=must,
            )
        )
        gap_s = seconds / 4 if lane in _SPREAD else pause_s
        at_s += habit.takes_s + gap_s + chance.uniform(*_GAP_S)
    return faults


def _next_step(left: list[str], steps: Sequence[str], chance: random.Random) -> str:
    """Return a step, every one once before any comes again."""
    if not steps:
        return ""
    if not left:
        left += steps
        chance.shuffle(left)
    return left.pop()
