"""Which events have a time from file to Delta."""

from __future__ import annotations

from dataclasses import replace

from tidegate.local_stack.judge.delta import ManifestTable, ReleaseManifest
from tidegate.local_stack.judge.event_deliveries import event_deliveries
from tidegate.local_stack.judge.events import EventRow, SourceEvent
from tidegate.local_stack.judge.verdict import Delivery

IN_TIME = SourceEvent("t", "a", 1, 4, is_deleted=False, row={}, source_us=1).written(
    2_000, is_in_time=True
)


class Times:
    def commit_times_ms(self, table: str) -> dict[int, int]:
        return {3: 10, 5: 20}


def manifest(number: int, version: int | None) -> ReleaseManifest:
    return ReleaseManifest(number, 0, 0, 1, {"t": ManifestTable("x", version, None, None)})


def deliveries(event: SourceEvent, *, release: int) -> list[Delivery]:
    row = EventRow("t", release, 0, "a", "", 1, "INSERT", {})
    manifests = [manifest(0, 3), manifest(1, 5), manifest(2, 7)]
    return event_deliveries(Times(), rows=[row], events={"a": event}, manifests=manifests)


def test_from_the_file_to_the_release():
    assert deliveries(IN_TIME, release=1) == [Delivery(2_000, 20_000, 1)]


def test_what_is_not_measured():
    assert deliveries(IN_TIME, release=0) == [], "the first release"
    assert deliveries(IN_TIME, release=2) == [], "its version is unknown"
    assert deliveries(replace(IN_TIME, is_in_time=False), release=1) == []
    assert deliveries(replace(IN_TIME, number=None), release=1) == [], "a row of a backfill"
