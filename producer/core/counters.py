"""Counters of one worker since its start, for metrics only; counted once the outcome is certain."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping

from tidegate.producer.core.publication import Publication
from tidegate.producer.core.stream_partition import StreamPartition
from tidegate.schemas.progress import TopicTotals

_NOTICED_MAX = 1_000
_FIRST_COMMITS_MAX = 10_000

_COUNTED = (
    "committed",
    "finished",
    "unproven_finish",
    "query_retry",
    "stalled",
    "turn_ended",
    "paused",
    "stopped",
    "abort",
    "unknown_outcome",
    "rejoin",
    "client_replaced",
    "filtered",
)


class Counters:
    """Counters by name, and committed totals by topic."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(_COUNTED, 0)
        self.published: dict[str, TopicTotals] = {}
        """Committed totals per topic; without checksums."""
        self.parked: Counter[tuple[str, str]] = Counter()
        """Changes that were committed to the dead-letter topic, by data topic and reason."""

        self.first_commits_us: deque[int] = deque(maxlen=_FIRST_COMMITS_MAX)
        """The commit timestamp of the earliest change that a transaction took from each stream
        partition; the observer clears it after each event."""
        self.noticed: deque[tuple[str, str]] = deque(maxlen=_NOTICED_MAX)
        """Counts that no event shows, with their tokens; the worker's observer clears it."""

    def notice(self, name: str, token: str) -> None:
        """Count an event of one stream partition, and note its token."""
        self.counts[name] += 1
        self.noticed.append((name, token))

    def add(
        self, tokens: Mapping[str, StreamPartition], publications: Mapping[str, Publication]
    ) -> None:
        """Count one slot's part of a committed transaction; `tokens` are the tokens before it."""
        for token, publication in publications.items():
            self.counts["finished"] += publication.finish is not None
            if publication.records:
                self.first_commits_us.append(publication.records[0].commit_timestamp_us)
            if publication.parked.changes != tokens[token].published_parked.changes:
                for record in publication.records:
                    self.parked.update((change.topic, change.reason) for change in record.parked)
            self.counts["filtered"] += publication.filtered - tokens[token].filtered
            before = tokens[token].totals
            for topic, totals in publication.totals.items():
                old = before.get(topic) or TopicTotals(topic, 0, 0, 0, 0)
                sofar = self.published.get(topic) or TopicTotals(topic, 0, 0, 0, 0)
                self.published[topic] = TopicTotals(
                    topic,
                    sofar.records + totals.records - old.records,
                    sofar.mods + totals.mods - old.mods,
                    sofar.value_bytes + totals.value_bytes - old.value_bytes,
                    checksum=0,
                )
