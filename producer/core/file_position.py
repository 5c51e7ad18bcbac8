"""The position of a stream partition that reads files: which records of which files are published.

It has the stored form of `core.position`, a watermark and a boundary, but other rules.  Files come
in any order, so the watermark does not depend on them: it is the source's statement about event
times.  The boundary names each file that may be listed again, with the number of its last record
and, after a slash, its place in the order of reading (its turn); a file that was read in parts,
with other files in between, has both for each part, separated by commas.  Files of minutes before
`CLOSED` are not listed again, unless the boundary names them.  The entry `SOURCE` describes the
source of the files and is never removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidegate.producer.core.position import Position
from tidegate.producer.messages import PublishableRecord
from tidegate.producer.records import FilesClosedRecord, PartitionStartRecord

FILES_PREFIX = "tidegate-datastream/"
"""Prefix of the tokens of stream partitions that read files."""

CLOSED = ":closed"
"""In a boundary: the first minute since 1970 that is open."""

SOURCE = ":source"
"""In a boundary: the kind of the source, then `/` and the base name of MySQL's log, if known."""

REFUSED = "!"
"""Suffix of a refused file's name in a boundary; the value is the first refused record.

The entry is separate from the file's records: when the file is complete, that record is still
unpublished.
"""

PARTS_MAX = 100
"""Parts of a file in a boundary; beyond these, the first part is joined to the second."""


class FilePosition(Position):
    """Everything at or below the watermark, and the named records of files, whatever their time."""

    __slots__ = ()

    def with_record(self, record: PublishableRecord) -> FilePosition:
        """Return the position after a record of a file, whose name is the record's transaction."""
        return self._entered(record.server_transaction_id, record.record_sequence)

    def with_start(self, start: PartitionStartRecord) -> FilePosition:
        """Return the position after stream partitions were named."""
        return FilePosition(
            self.watermark_us, {**self.boundary, **dict.fromkeys(start.tokens, "1")}
        )

    def with_closed(self, record: FilesClosedRecord) -> FilePosition:
        """Return the position without files that are not listed again, and with the source."""
        closed = frozenset(record.files)
        boundary = {
            name: sequence for name, sequence in self.boundary.items() if name not in closed
        }
        if record.source:
            boundary[SOURCE] = record.source
        return FilePosition(self.watermark_us, {**boundary, CLOSED: str(record.first_open_minute)})

    def through(self, at_us: int) -> FilePosition:
        """Return the position after the end of an instant; files stay the same."""
        if at_us <= self.watermark_us:
            return self
        return FilePosition(at_us, self.boundary)

    @property
    def resumption(self) -> Mapping[str, str]:
        """The boundary: the files that are read again without being returned."""
        return self.boundary

    def covers(self, record: PublishableRecord) -> bool:
        """Whether a record of a file is already contained."""
        sequence = self.boundary.get(record.server_transaction_id)
        return sequence is not None and _last_record(record.record_sequence) <= _last_record(
            sequence
        )

    def covers_start(self, start: PartitionStartRecord) -> bool:
        """Whether all stream partitions are already named."""
        return self.boundary.keys() >= set(start.tokens)

    def _entered(self, name: str, part: str) -> FilePosition:
        before = "" if name.endswith(REFUSED) else self.boundary.get(name, "")
        return FilePosition(self.watermark_us, {**self.boundary, name: _with_part(before, part)})


def parts_of(entry: str) -> list[tuple[int, int]]:
    """Parse a file's entry in a boundary: the last record of each part, and the part's turn."""
    parts = (part.partition("/") for part in entry.split(","))
    return [(int(record), int(turn)) for record, _, turn in parts]


def _last_record(entry: str) -> int:
    return int(entry.rpartition(",")[2].partition("/")[0])


def _with_part(entry: str, part: str) -> str:
    """Return an entry of a file after one more record, in its last part or a new one.

    The first parts are joined: the times of their events are over first, and then their order no
    longer matters.
    """
    if not entry:
        return part
    before, _, last = entry.rpartition(",")
    if last.partition("/")[2] == part.partition("/")[2]:
        return f"{before},{part}" if before else part
    if entry.count(",") + 1 >= PARTS_MAX:
        entry = entry.partition(",")[2]
    return f"{entry},{part}"


def position_of(
    token: str, watermark_us: int, boundary: Iterable[tuple[str, str]] = ()
) -> Position:
    """Return a position with the rules of the token's stream partition."""
    kind = FilePosition if token.startswith(FILES_PREFIX) else Position
    return kind(watermark_us, dict(boundary))
