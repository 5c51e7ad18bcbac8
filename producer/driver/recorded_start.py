"""The end of a search whose record was read before the worker started."""

from __future__ import annotations

from tidegate.schemas.progress import ProgressRecord


class RecordedStart:
    """Knows the record that opened the epoch, and reads nothing; port: `ports.StreamStartFinder`.

    The record is committed and never changes; that it belongs to the topic as it is now, and not
    to a former topic of that name, is what the worker's comparison of topic ids finds out.
    """

    def __init__(self, record: ProgressRecord) -> None:
        """Take the record."""
        self._record = record

    def poll(self, timeout_s: float = 0.0) -> tuple[ProgressRecord, bool]:  # noqa: ARG002 - the port's signature
        """Return the record."""
        return self._record, False

    def close(self) -> None:
        """Change nothing."""
