"""When Datastream's events were committed in Delta: from the file to the changelog."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Protocol

from tidegate.local_stack.judge.delta import ReleaseManifest
from tidegate.local_stack.judge.events import EventRow, SourceEvent
from tidegate.local_stack.judge.verdict import Delivery


class CommitTimes(Protocol):
    """When each version of a changelog was committed."""

    def commit_times_ms(self, table: str) -> Mapping[int, int]:
        """Return the time of each version, in milliseconds since 1970."""


def event_deliveries(
    times: CommitTimes,
    *,
    rows: Sequence[EventRow],
    events: Mapping[str, SourceEvent],
    manifests: Sequence[ReleaseManifest],
) -> list[Delivery]:
    """Return one delivery for each change that was in time, but for those of the first release.

    It waits for the start of a JVM.
    """
    delivered_ms: defaultdict[str, dict[int, int]] = defaultdict(dict)
    known: dict[str, Mapping[int, int]] = {}
    for manifest in manifests[1:]:
        for table, entry in manifest.tables.items():
            if table not in known:
                known[table] = times.commit_times_ms(table)
            version = entry.changelog_version
            if version is not None and version in known[table]:
                delivered_ms[table][manifest.number] = known[table][version]
    return [
        Delivery(event.written_us, delivered_ms[row.table][row.release] * 1_000, row.release)
        for row in rows
        for event in [events.get(row.uuid)]
        if event is not None and event.number is not None and event.is_in_time
        if row.release in delivered_ms[row.table]
    ]
