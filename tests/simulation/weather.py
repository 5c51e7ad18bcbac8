"""What a seed decides before anything happens: shapes, and which faults there are, and how often.

Each kind of fault is absent in a good part of the seeds, so that one does not hide another.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

__all__ = ["Weather"]


@dataclass(frozen=True, slots=True)
class Weather:
    """Chances are per step of the world, unless a name says otherwise."""

    nodes: int
    slots: int
    tables: int
    topic_partitions: int
    is_atomic: bool
    """Whether workers handle an outcome before anything else."""
    is_bounded: bool
    chunk_items: int
    commit_interval_us: int
    skew_us: int
    """Largest difference between a worker's clock and the world's."""
    release_rows: int
    segment_rows: int
    segments: int

    steps: int
    commits: float
    churn: float
    markers: float
    background: float
    consumer: float
    consumer_begins: float
    """Part of the faulty phase that is over when the consumer is first started."""
    lag: float
    """Chance per topic partition and batch not to be read on at all."""

    crash: float
    pause: float
    resume: float
    replace: float
    """A second process under the name of one that is paused."""
    expire: float
    drain: float
    impatience: float
    """Chance per step of a worker to stop waiting for a revoked slot's last commit."""
    time_out: float
    time_jump: float
    compaction: float
    consumer_crash: float
    consumer_zombie: float
    copies: float
    move: float

    refused: float
    """Chance per request to the broker."""
    reply_lost: float
    """Chance per commit."""
    query_breaks: float
    """Chance per query to end early with an error."""
    query_truncates: float
    """Chance per query to end with OK and without a word about the children."""

    @classmethod
    def drawn(cls, random: Random) -> Weather:
        """Return the weather of a seed."""

        def sometimes(chance: float, often: float = 0.5) -> float:
            return chance * random.choice((0.3, 1, 3)) if random.random() < often else 0.0

        return cls(
            nodes=random.choice((1, 2, 2, 3, 3)),
            slots=random.choice((1, 2, 3, 3, 5)),
            tables=random.choice((1, 1, 2)),
            topic_partitions=random.choice((1, 2, 3)),
            is_atomic=random.random() < 0.5,
            is_bounded=random.random() < 0.25,
            chunk_items=random.choice((1, 2, 400, 400)),
            commit_interval_us=random.choice((1, 50_000, 250_000)),
            skew_us=random.choice((0, 0, 2_000_000, 90_000_000)),
            release_rows=random.choice((2, 10, 500)),
            segment_rows=random.choice((3, 20, 500)),
            segments=random.choice((2, 8, 32)),
            steps=random.choice((900, 1_500, 2_500)),
            commits=random.choice((0.01, 0.02, 0.04)),
            churn=random.choice((0.001, 0.004, 0.01)),
            markers=random.choice((0.02, 0.1, 0.3)),
            background=random.choice((0.05, 0.15)),
            consumer=random.choice((0.03, 0.1, 0.3)),
            consumer_begins=random.choice((0.0, 0.0, 0.5, 1.0)),
            lag=random.choice((0.0, 0.5, 0.95)),
            crash=sometimes(0.002),
            pause=sometimes(0.003),
            resume=random.choice((0.002, 0.01)),
            replace=sometimes(0.002),
            expire=sometimes(0.002),
            drain=sometimes(0.0007, 0.3),
            impatience=sometimes(0.02, 0.3),
            time_out=sometimes(0.002),
            time_jump=sometimes(0.002),
            compaction=sometimes(0.01),
            consumer_crash=sometimes(0.005),
            consumer_zombie=sometimes(0.003, 0.3),
            copies=sometimes(0.002, 0.2),
            move=sometimes(0.001, 0.2),
            refused=sometimes(0.01),
            reply_lost=sometimes(0.05),
            query_breaks=sometimes(0.2),
            query_truncates=sometimes(0.2),
        )
