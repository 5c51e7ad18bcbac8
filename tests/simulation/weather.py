"""What a seed decides before anything happens: shapes, and which faults there are, and how often.

Each kind of fault is absent in a good part of the seeds, so that one does not hide another.
"""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

from tidegate.lineage.slot_view import ANNOUNCEMENTS_MAX
from tidegate.lineage.snapshot_queue import ENTRIES_WAITING_MAX, SNAPSHOTS_WAITING_MAX
from tidegate.producer.core.partition_index import OPEN_QUERIES_MAX
from tidegate.producer.core.publication import PARKED_KEYS_MAX
from tidegate.producer.record_filter import MOD_TYPES, RecordFilter
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.progress_chunks import CHUNK_BYTES_MAX
from tidegate.spark_consumer.core.cadence import Cadence

ANY_SCHEMA = 1_000_000_000  # seeds from here on have tables of any schema
TAG = "batch"  # of the transactions that a filter may leave out
CHUNKS_CHURN = 0.02
"""The least churn where tables are read in chunks, since it takes their runs further."""


class Weather(SimpleNamespace):
    """Chances are per step of the world, unless a comment says otherwise."""

    def but(self, **other: Any) -> Weather:
        return Weather(**{**vars(self), **other})

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

        may_redrive = (is_poisoned or has_sizes) and not has_moves
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
            # what the readers of a worker may hold together: with large values, or many, one
            # response may be larger than the smallest
            budget_bytes=max(
                random.choice((2_000, 16_000, 16_000, 8 << 20)), (has_sizes or any_schema) << 23
            ),
            # how long a worker waits for a revoked slot's last commit
            revoke_patience_s=random.choice((0.2, 5, 60)),
            # largest difference between a worker's wall clock and the world's
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
            # part of the faulty phase that is over when the consumer is first started
            consumer_begins=random.choice((0.0, 0.0, 0.5, 1.0)),
            # chance per topic partition and batch not to be read on at all
            lag=random.choice((0.0, 0.5, 0.95)),
            crash=sometimes(0.002),
            pause=sometimes(0.003),
            resume=random.choice((0.002, 0.01)),
            replace=sometimes(0.002),  # a second process under the name of one that is paused
            expire=sometimes(0.002),
            drain=sometimes(0.0007, 0.3),
            time_out=sometimes(0.002),
            time_jump=sometimes(0.002),
            compaction=sometimes(0.01),
            consumer_crash=sometimes(0.005),
            consumer_zombie=sometimes(0.003, 0.3),
            copies=sometimes(0.01, 0.3),
            move=sometimes(0.001, 0.2),
            # a worker's wall clock is set back or forth by an hour
            wall_step=sometimes(0.001, 0.3),
            refused=sometimes(0.01),  # chance per request to the broker
            reply_lost=sometimes(0.05),  # chance per commit
            query_breaks=sometimes(0.2),  # chance per query to end early with an error
            # chance per query to end with OK and without a word about the children
            query_truncates=sometimes(0.2),
            # chance per query to return nothing more, and not to end, from some moment on
            query_silent=sometimes(0.05, 0.4),
            # chance per response that all further queries of its token end after what they repeat
            query_repeats=sometimes(0.01, 0.3),
            # chance per query that its token is refused from then on, until the faults end
            token_refused=sometimes(0.02, 0.3),
            large_values=sizes.choice((0.05, 0.2, 0.4)) if has_sizes else 0.0,
            # the brokers' limit on messages; topics may have limits of their own
            brokers_bytes_max=sizes.choice((700, 1_500, 20_000)) if has_sizes else 1 << 20,
            limit_changes=sizes.choice((0.0, 0.004, 0.02)) if has_sizes else 0.0,
            chunk_bytes=sizes.choice((1, 120, CHUNK_BYTES_MAX)) if has_sizes else CHUNK_BYTES_MAX,
            # each start of a worker draws its program, and the version of its progress records
            progress_versions_meet=versions_meet,
            history_minutes=heartbeats.choice((2, 10, 1_000)),
            chain_length=heartbeats.choice((1, 3, 20, 1_000)),
            chain_entries=heartbeats.choice((1, 5, 64)),
            open_queries=queries.choice((1, 1, 2, 3)) if is_crowded else OPEN_QUERIES_MAX,
            turn_us=queries.choice((50_000, 400_000, 2_000_000)),
            # how far a stream partition is read ahead of its worker's slowest; 0: as far as it goes
            drift_us=queries.choice((0, 0, 0, 200_000, 2_000_000)),
            poison=max(poison.choice((0.02, 0.08, 0.2)), 0.3 * is_full) if is_poisoned else 0.0,
            # workers that write version 2 park such changes; others stop their stream partitions
            parks=poison.random() < 0.7 and not has_moves,
            # a client that has to join its group does nothing any more, and gives no error
            stuck_clients=0.05 if queries.random() < 0.15 else 0.0,
            timestamps=TimestampForm.STRING if has_text else TimestampForm.MICROS,
            # an operator puts back what was parked; as often one that does so is killed
            redrive=poison.choice((0.0, 0.002, 0.008)) if may_redrive else 0.0,
            parked_keys_max=registry.choice((1, 2, 3)) if is_full else PARKED_KEYS_MAX,
            # chance per version of a schema that the registry refuses it, until the faults end
            schema_refused=0.7 if refuses_schemas else 0.0,
            # how many snapshots of a slot a reader keeps that it has not reached
            snapshots_waiting=waiting.choice((2, 5)) if is_thinned else SNAPSHOTS_WAITING_MAX,
            # how many entries of their vectors, over all slots
            entries_waiting=waiting.choice((6, 60)) if is_thinned else ENTRIES_WAITING_MAX,
            announcements=waiting.choice((0, 1, 3)) if is_thinned else ANNOUNCEMENTS_MAX,
            # keys move between stream partitions that go on, and queries have an end
            key_moves=has_moves,
            controls=operators.choice((0.001, 0.003, 0.01)) if is_operated else 0.0,
            drains=operators.choice((0.0, 0.001, 0.004)) if is_operated else 0.0,
            record_filter=_filter(Random(f"filter {seed}")),  # what the workers leave out
            tombstones=Random(f"tombstones {seed}").random() < 0.4,
            backfill=has_rows,  # the stream begins with the rows that the tables have then
            chunks=has_chunks,  # rows are read in chunks while the stream runs
            any_schema=any_schema,  # tables have keys, columns and values of any type
            window_us=moves.choice((5_000_000, 60_000_000, 1_200_000_000)),
            # the least time between two merges of the mirrors; 0: with every release
            mirror_every_us=mirrors.choice((0, 300_000, 1_000_000, 4_000_000)),
            # chance per batch that a mirror joins a query without one; 0: it has one from the start
            mirror_joins=Random(f"sinks {seed}").choice((0.0, 0.0, 0.05, 0.3)),
        )


def _filter(random: Random) -> RecordFilter:
    if random.random() >= 0.2:
        return RecordFilter()
    left_out = random.choice(MOD_TYPES)
    kinds = tuple(one for one in MOD_TYPES if one != left_out)
    tags = random.choice(((), (TAG,)))
    return RecordFilter(
        mod_types=random.choice((kinds, MOD_TYPES)) if tags else kinds, tags_left_out=tags
    )
