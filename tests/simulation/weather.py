"""What a seed decides before anything happens: shapes, and which faults there are, and how often.

Each kind of fault is absent in a good part of the seeds, so that one does not hide another.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tidegate.lineage.slot_view import ANNOUNCEMENTS_MAX
from tidegate.lineage.snapshot_queue import ENTRIES_WAITING_MAX, SNAPSHOTS_WAITING_MAX
from tidegate.producer.core.parked_keys import PARKED_KEYS_MAX
from tidegate.producer.core.query_scheduler import OPEN_QUERIES_MAX
from tidegate.producer.record_filter import MOD_TYPES, RecordFilter
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.progress_chunks import CHUNK_BYTES_MAX
from tidegate.spark_consumer.core.cadence import Cadence

__all__ = ["ANY_SCHEMA", "CHUNKS_CHURN", "TAG", "Weather"]

ANY_SCHEMA = 1_000_000_000
"""Seeds from here on have tables of any schema."""

TAG = "batch"
"""Of the transactions that a filter may leave out."""
CHUNKS_CHURN = 0.02
"""The least churn where tables are read in chunks, since it takes their runs further."""


@dataclass(frozen=True, slots=True)
class Weather:
    """Chances are per step of the world, unless a name says otherwise."""

    nodes: int
    slots: int
    tables: int
    topic_partitions: int
    is_bounded: bool
    chunk_items: int
    commit_interval_us: int
    commit_bytes: int
    budget_bytes: int
    """What the readers of a worker may hold together."""
    revoke_patience_s: float
    """How long a worker waits for a revoked slot's last commit."""
    skew_us: int
    """Largest difference between a worker's wall clock and the world's."""
    release_rows: int
    segment_rows: int
    segments: int

    steps: int
    commits: float
    churn: float
    ddl: float
    """A column or a table is added or dropped."""
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
    time_out: float
    time_jump: float
    compaction: float
    consumer_crash: float
    consumer_zombie: float
    copies: float
    move: float
    wall_step: float
    """A worker's wall clock is set back or forth by an hour."""

    refused: float
    """Chance per request to the broker."""
    reply_lost: float
    """Chance per commit."""
    query_breaks: float
    """Chance per query to end early with an error."""
    query_truncates: float
    """Chance per query to end with OK and without a word about the children."""
    query_silent: float
    """Chance per query to return nothing more, and not to end, from some moment on."""
    query_repeats: float
    """Chance per response that all further queries of its token end after what they repeat."""
    token_refused: float
    """Chance per query that its token is refused from then on, until the faults end."""

    large_values: float
    """Chance per value of text or bytes to be large."""
    brokers_bytes_max: int
    """The brokers' limit on messages; topics may have limits of their own."""
    limit_changes: float
    """An operator raises or lowers a topic's limit."""
    chunk_bytes: int
    """Of what is cut in one progress record."""
    progress_versions_meet: bool
    """Each start of a worker draws its program, and the version of its progress records."""
    history_minutes: int
    chain_length: int
    chain_entries: int

    open_queries: int
    """How many queries one worker may run at the same time."""
    turn_us: int
    """How long a query runs at least before it makes way for another."""
    stuck_clients: float
    """A client that has to join its group does nothing any more, and gives no error."""
    drift_us: int
    """How far a stream partition is read ahead of its worker's slowest; 0: as far as it goes."""
    poison: float
    """Chance per change that it cannot be published."""
    parks: bool
    """Workers that write version 2 park such changes; others stop their stream partitions."""
    timestamps: TimestampForm
    """How the stream carries columns of type TIMESTAMP."""
    redrive: float
    """An operator puts back what was parked; as often one that does so is killed."""
    parked_keys_max: int
    """So many keys a stream partition may park before it stops."""
    schema_refused: float
    """Chance per version of a schema that the registry refuses it, until the faults end."""

    controls: float
    """An operator pauses the stream, or resumes it."""
    drains: float
    """An operator takes a worker away."""

    snapshots_waiting: int
    """How many snapshots of a slot a reader keeps that it has not reached."""
    entries_waiting: int
    """How many entries of their vectors, over all slots."""
    announcements: int
    """How many announcements of a slot a reader keeps apart."""
    key_moves: bool
    """Keys move between stream partitions that go on, and queries have an end."""
    window_us: int
    """The interval of one query, where queries have an end."""
    backfill: bool
    """The stream begins with the rows that the tables have then."""
    record_filter: RecordFilter
    """What the workers leave out."""
    tombstones: bool
    """Whether each DELETE is followed by a record with its key and no value."""
    mirror_every_us: int
    """The least time between two merges of the mirrors; 0: with every release."""
    mirror_joins: float
    """Chance per batch that a mirror joins a query which has none; 0: it has one from the start."""
    chunks: bool
    """Rows are read in chunks while the stream runs."""
    any_schema: bool
    """Tables have keys, columns and values of any type."""

    def cadence(self, random: Random, *, now_us: int) -> Cadence:
        """Draw how often a run merges the mirrors: some merge each release, or stop at an end.

        Whatever the end is, after the faults every run has passed it.
        """
        every_us = 0 if random.random() < 0.2 else self.mirror_every_us
        return Cadence(every_us, goal_us=now_us if random.random() < 0.1 else None)

    @classmethod
    def drawn(cls, random: Random, seed: int) -> Weather:
        """Return the weather of a seed.

        `random` draws what there was at first.  What came later has numbers of its own, by its
        name, so that it leaves the stories of the others as they were.
        """
        sizes, heartbeats, queries, poison, registry, timestamps, waiting, mirrors, moves = (
            Random(f"{name} {seed}")
            for name in (
                "sizes", "heartbeats", "queries", "poison", "registry", "timestamps", "waiting",
                "mirrors", "moves",
            )
        )  # fmt: skip
        is_poisoned = poison.random() < 0.35
        has_sizes = sizes.random() < 0.35
        refuses_schemas = is_poisoned and registry.random() < 0.5
        is_full = registry.random() < 0.35
        is_thinned = waiting.random() < 0.35
        is_crowded = queries.random() < 0.35

        has_moves = moves.random() < 0.2
        # Older programs know no keys that move, and what has moved is not parked.
        versions_meet = heartbeats.random() < 0.25 and not has_moves
        has_text = timestamps.random() < 0.5 and not versions_meet  # version 1 does not record it

        # What is older than version 4 stops at such records.
        operators = Random(f"operators' weather {seed}")
        is_operated = operators.random() < 0.35 and not versions_meet
        has_rows = Random(f"backfill {seed}").random() < 0.25 and not has_moves
        has_chunks = Random(f"chunks {seed}").random() < 0.15 and not (has_moves or has_rows)

        any_schema = seed >= ANY_SCHEMA

        def sometimes(chance: float, often: float = 0.5) -> float:
            return chance * random.choice((0.3, 1, 3)) if random.random() < often else 0.0

        return cls(
            nodes=random.choice((1, 2, 2, 3, 3)),
            slots=random.choice((1, 2, 3, 3, 5)),
            tables=random.choice((1, 1, 2)),
            topic_partitions=random.choice((1, 2, 3)),
            is_bounded=random.random() < 0.25,
            chunk_items=random.choice((1, 2, 400, 400)),
            commit_interval_us=random.choice((1, 50_000, 250_000)),
            commit_bytes=random.choice((600, 6_000)),
            # With large values, or many, one response may be larger than the smallest budget.
            budget_bytes=max(
                random.choice((2_000, 16_000, 16_000, 8 << 20)), (has_sizes or any_schema) << 23
            ),
            revoke_patience_s=random.choice((0.2, 5, 60)),
            skew_us=random.choice((0, 0, 2_000_000, 90_000_000)),
            release_rows=random.choice((2, 10, 500)),
            segment_rows=random.choice((3, 20, 500)),
            segments=random.choice((2, 8, 32)),
            steps=random.choice((900, 1_500, 2_500)),
            commits=random.choice((0.01, 0.02, 0.04)),
            churn=max(random.choice((0.001, 0.004, 0.01)), CHUNKS_CHURN * has_chunks),
            ddl=max(random.choice((0.0, 0.001, 0.004)), 0.008 * refuses_schemas),
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
            time_out=sometimes(0.002),
            time_jump=sometimes(0.002),
            compaction=sometimes(0.01),
            consumer_crash=sometimes(0.005),
            consumer_zombie=sometimes(0.003, 0.3),
            copies=sometimes(0.01, 0.3),
            move=sometimes(0.001, 0.2),
            wall_step=sometimes(0.001, 0.3),
            refused=sometimes(0.01),
            reply_lost=sometimes(0.05),
            query_breaks=sometimes(0.2),
            query_truncates=sometimes(0.2),
            query_silent=sometimes(0.05, 0.4),
            query_repeats=sometimes(0.01, 0.3),
            token_refused=sometimes(0.02, 0.3),
            large_values=sizes.choice((0.05, 0.2, 0.4)) if has_sizes else 0.0,
            brokers_bytes_max=sizes.choice((700, 1_500, 20_000)) if has_sizes else 1 << 20,
            limit_changes=sizes.choice((0.0, 0.004, 0.02)) if has_sizes else 0.0,
            chunk_bytes=sizes.choice((1, 120, CHUNK_BYTES_MAX)) if has_sizes else CHUNK_BYTES_MAX,
            progress_versions_meet=versions_meet,
            history_minutes=heartbeats.choice((2, 10, 1_000)),
            chain_length=heartbeats.choice((1, 3, 20, 1_000)),
            chain_entries=heartbeats.choice((1, 5, 64)),
            open_queries=queries.choice((1, 1, 2, 3)) if is_crowded else OPEN_QUERIES_MAX,
            turn_us=queries.choice((50_000, 400_000, 2_000_000)),
            drift_us=queries.choice((0, 0, 0, 200_000, 2_000_000)),
            poison=max(poison.choice((0.02, 0.08, 0.2)), 0.3 * is_full) if is_poisoned else 0.0,
            parks=poison.random() < 0.7 and not has_moves,
            stuck_clients=0.05 if queries.random() < 0.15 else 0.0,
            timestamps=TimestampForm.STRING if has_text else TimestampForm.MICROS,
            redrive=poison.choice((0.0, 0.002, 0.008))
            if (is_poisoned or has_sizes) and not has_moves
            else 0.0,
            parked_keys_max=registry.choice((1, 2, 3)) if is_full else PARKED_KEYS_MAX,
            schema_refused=0.7 if refuses_schemas else 0.0,
            snapshots_waiting=waiting.choice((2, 5)) if is_thinned else SNAPSHOTS_WAITING_MAX,
            entries_waiting=waiting.choice((6, 60)) if is_thinned else ENTRIES_WAITING_MAX,
            announcements=waiting.choice((0, 1, 3)) if is_thinned else ANNOUNCEMENTS_MAX,
            key_moves=has_moves,
            controls=operators.choice((0.001, 0.003, 0.01)) if is_operated else 0.0,
            drains=operators.choice((0.0, 0.001, 0.004)) if is_operated else 0.0,
            record_filter=_filter(Random(f"filter {seed}")),
            tombstones=Random(f"tombstones {seed}").random() < 0.4,
            backfill=has_rows,
            chunks=has_chunks,
            any_schema=any_schema,
            window_us=moves.choice((5_000_000, 60_000_000, 1_200_000_000)),
            mirror_every_us=mirrors.choice((0, 300_000, 1_000_000, 4_000_000)),
            mirror_joins=Random(f"sinks {seed}").choice((0.0, 0.0, 0.05, 0.3)),
        )


def _filter(random: Random) -> RecordFilter:
    """Draw a filter; in most seeds nothing is left out."""
    if random.random() >= 0.2:
        return RecordFilter()
    left_out = random.choice(MOD_TYPES)
    kinds = tuple(one for one in MOD_TYPES if one != left_out)
    tags = random.choice(((), (TAG,)))
    return RecordFilter(
        mod_types=random.choice((kinds, MOD_TYPES)) if tags else kinds, tags_left_out=tags
    )
