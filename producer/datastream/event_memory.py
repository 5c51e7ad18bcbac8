"""The memory of one object's events: release times that grow with the source's order, and uuids.

In some sources an event's `source_timestamp` does not grow with the order: it is the time of a
statement, not of its commit.  Readers release by time and sort within a release, so each event gets
a time between those of its neighbours in the order, as close to `source_timestamp` as possible.
Times before the earliest open one are dropped.

Memory is bounded: of too many events the lower half by order is dropped.  Later events are not
affected, because the highest dropped one is kept; an event whose place is among the dropped ones is
late, whatever its time.

Datastream delivers an event at least once, copies within minutes.  The uuids of each file are kept
until the file leaves the position, and read again with it after a restart.  Pure.
"""

from __future__ import annotations

from bisect import bisect_left

from tidegate.schemas.checksums import xxhash_64

KEPT_MAX = 200_000


class EventTimes:
    """The release times assigned to events, by order key."""

    def __init__(self, kept_max: int = KEPT_MAX) -> None:
        """`kept_max` is the number of events with open times whose places are kept."""
        self._kept_max = kept_max
        self._times: list[tuple[bytes, int]] = []
        """Sorted by both: times never fall while keys grow."""
        self._floor: tuple[bytes, int] | None = None
        """The highest of the entries that were dropped although their times are open: no kept key
        or time is below it."""
        self._earliest_us = 0

    def time_of(
        self, order_key: bytes, source_us: int, *, earliest_us: int, latest_us: int
    ) -> tuple[int, bool]:
        """Return the release time of an event, and whether the event is late.

        It is at least `earliest_us`, the first open time, and at most `latest_us` if that is open.
        `earliest_us` never falls.  A late event belongs before the open times: it has a time before
        them, or a place among dropped events.
        """
        self._forget(earliest_us)
        is_late = source_us < earliest_us
        lowest_us = earliest_us
        if self._floor is not None:
            floor_key, floor_us = self._floor
            if order_key < floor_key:
                return earliest_us, True
            if order_key == floor_key:
                return floor_us, is_late
            lowest_us = floor_us
        place = bisect_left(self._times, (order_key, -1))
        if place < len(self._times) and self._times[place][0] == order_key:
            return self._times[place][1], is_late
        if place:
            lowest_us = self._times[place - 1][1]
        time_us = max(min(source_us, latest_us), lowest_us, earliest_us)
        if place < len(self._times):
            time_us = min(time_us, self._times[place][1])
        self._times.insert(place, (order_key, time_us))
        if len(self._times) > self._kept_max:
            self._forget_half()
        return time_us, is_late

    def _forget(self, earliest_us: int) -> None:
        """Drop entries before the earliest time: a new one before them gets that time anyway."""
        if earliest_us > self._earliest_us:
            self._earliest_us = earliest_us
            first = bisect_left(self._times, earliest_us, key=lambda entry: entry[1])
            del self._times[:first]
            if self._floor is not None and self._floor[1] < earliest_us:
                self._floor = None

    def _forget_half(self) -> None:
        """Drop the lower half, except its highest entry."""
        count = (len(self._times) + 1) // 2
        self._floor = self._times[count - 1]
        del self._times[:count]


class SeenUuids:
    """Hashes of the uuids of files, up to `uuids_max`: the oldest file's are dropped first.

    A hash has 64 bits: among a million of them, about one event in 10^13 counts as a copy wrongly.
    """

    def __init__(self, uuids_max: int) -> None:
        self._uuids_max = uuids_max
        self._all: set[int] = set()
        self._of_file: dict[str, list[int]] = {}
        self.forgotten = 0
        """Number of uuids that were dropped although their file is still open."""

    def add(self, file: str, uuid: str) -> bool:
        """Add an event of a file; return whether it is the first one with its uuid."""
        hashed = xxhash_64(uuid.encode(errors="surrogateescape"))
        if hashed in self._all:
            return False
        self._all.add(hashed)
        self._of_file.setdefault(file, []).append(hashed)
        if len(self._all) > self._uuids_max:
            self.forgotten += self._forget(min(self._of_file))
        return True

    def close(self, files: tuple[str, ...]) -> None:
        """Drop the uuids of files."""
        for file in files:
            self._forget(file)

    def _forget(self, file: str) -> int:
        hashes = self._of_file.pop(file, [])
        self._all.difference_update(hashes)
        return len(hashes)
