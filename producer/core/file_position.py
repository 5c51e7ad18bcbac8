"""The position of a stream partition that reads files: which records of which files are published.

It has the stored form of `core.position`, a watermark and a boundary, and other rules.  Files come
in any order, so the watermark says nothing of them: it is what the source states of event times.
The boundary names each file that may be met again, with the number of its last record, and behind a
slash the file's place in the order of reading; files of minutes before `CLOSED` are not met again,
unless the boundary names them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.producer.core.position import Position

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidegate.producer.messages import PublishableRecord
    from tidegate.producer.records import FilesClosedRecord, PartitionStartRecord

__all__ = ["CLOSED", "FILES_PREFIX", "FilePosition", "position_of"]

FILES_PREFIX = "tidegate-datastream/"
"""Tokens of stream partitions that read files begin with it."""

CLOSED = ":closed"
"""In a boundary: the first minute since 1970 that is open."""


class FilePosition(Position):
    """Everything at or below the watermark, and the named records of files, whatever their time."""

    __slots__ = ()

    def with_record(self, record: PublishableRecord) -> FilePosition:
        """Return the position after one more record of a file, which is the transaction's name."""
        return self._entered(record.server_transaction_id, record.record_sequence)

    def with_start(self, start: PartitionStartRecord) -> FilePosition:
        """Return the position after stream partitions were named."""
        return FilePosition(
            self.watermark_us, {**self.boundary, **dict.fromkeys(start.tokens, "1")}
        )

    def with_closed(self, record: FilesClosedRecord) -> FilePosition:
        """Return the position without files that are not met again."""
        gone = frozenset(record.files)
        left = {name: at for name, at in self.boundary.items() if name not in gone}
        return FilePosition(self.watermark_us, {**left, CLOSED: str(record.first_open_minute)})

    def through(self, at_us: int) -> FilePosition:
        """Return the position when all of an instant was returned; files stay what they are."""
        if at_us <= self.watermark_us:
            return self
        return FilePosition(at_us, self.boundary)

    @property
    def resumption(self) -> Mapping[str, str]:
        """The boundary: the files that are read again, and not returned."""
        return self.boundary

    def covers(self, record: PublishableRecord) -> bool:
        """Whether a record of a file is contained already."""
        at = self.boundary.get(record.server_transaction_id)
        return at is not None and _number(record.record_sequence) <= _number(at)

    def covers_start(self, start: PartitionStartRecord) -> bool:
        """Whether all stream partitions were named already."""
        return self.boundary.keys() >= set(start.tokens)

    def _entered(self, name: str, number: str) -> FilePosition:
        return FilePosition(self.watermark_us, {**self.boundary, name: number})


def _number(entry: str) -> int:
    return int(entry.partition("/")[0])


def position_of(
    token: str, watermark_us: int, boundary: Iterable[tuple[str, str]] = ()
) -> Position:
    """Return a position with the rules of the token's stream partition."""
    kind = FilePosition if token.startswith(FILES_PREFIX) else Position
    return kind(watermark_us, dict(boundary))
