"""One stream partition: its keys, its life, its relatives and its records."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from spanner_simulator.core.change_streams.record_log import RecordLog
from spanner_simulator.core.change_streams.records import LoggedRecord
from spanner_simulator.core.rows.storage import KeyRange
from spanner_simulator.errors import invariant

_RECENT_KEYS_MAX = 512


@dataclass(slots=True, eq=False)
class StreamPartition:
    """One stream partition over its whole life; `end_us` and `children` are set when it ends.

    `ranges` are its keys in key order: exactly one range when immutable, else any number.
    """

    token: str
    ranges: tuple[KeyRange, ...]
    start_us: int
    parents: tuple[str, ...] = ()
    is_mutable: bool = False
    end_us: int | None = None
    children: tuple[StreamPartition, ...] = ()
    records: RecordLog = field(default_factory=RecordLog)
    recent_keys: deque[bytes] = field(default_factory=lambda: deque(maxlen=_RECENT_KEYS_MAX))

    @property
    def is_live(self) -> bool:
        """Whether new records may still come."""
        return self.end_us is None

    @property
    def low(self) -> bytes:
        """The first key that it may hold."""
        return self.ranges[0].low if self.ranges else b""

    @property
    def high(self) -> bytes | None:
        """Above all keys that it may hold; None: no bound."""
        return self.ranges[-1].high if self.ranges else b""

    def holds(self, key: bytes) -> bool:
        """Whether a key is one of its own, now or when it ended."""
        return any(one.holds(key) for one in self.ranges)

    def append(self, record: LoggedRecord) -> None:
        """Add the next record in commit order."""
        invariant(self.end_us is None, "a record for a stream partition that has ended")
        invariant(record.commit_timestamp_us >= self.start_us, "a record before the start")
        self.records.append(record)
