"""The errors about Datastream's files, with the place in the file.

    DatastreamError             the branch; `file` and `record` name the place
    ├── FileCutShort            the file ends in the middle of a block, a line or its compression
    ├── FileDamaged             bytes do not follow the file's format
    ├── FileDenied              the file may not be read, and the folder around it may
    ├── WrongSchema             a field that Datastream writes is missing, or has another type
    ├── InvalidEvent            a field has a value that Datastream's documentation does not allow
    ├── UnknownReadMethod       `read_method` is not one of a known source
    ├── MissingSortKey          a change lacks the fields that order it
    ├── SortKeyMismatch         `sort_keys` contradict the fields that order the source's changes
    ├── FileNamesCollide        two files of one minute cannot be distinguished
    ├── MisplacedFile           a file is not in the folder of a minute
    ├── MixedSources            events of several sources are in one location
    ├── IncompleteRow           an event of Spanner has the changed columns alone
    └── MissingKeyColumn        an event names a key column that its row does not have

`record` counts from 1, as lines of a JSON file do; 0 is the head of a file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from tidegate.producer.errors import SourceFileError


@dataclass(frozen=True, order=True, slots=True)
class Position:
    """A record of a file; sorts by the file's path, then by number.

    Datastream's paths begin with the time of writing, so this is the order of writing in an object.
    """

    file: str
    record: int
    """From 1; 0 for the head of the file."""


def printable(path: str) -> str:
    """Return a path as text that can be encoded: a file name may have any bytes."""
    return path.encode(errors="backslashreplace").decode()


class DatastreamError(SourceFileError):
    """A file of Datastream's cannot be used; the fields hold `file` and `record`."""

    fix: ClassVar[str] = ""

    @classmethod
    def at(cls, position: Position, message: str, **fields: object) -> Self:
        """Return the error about one record, with the class's hint."""
        return cls(message, hint=cls.fix, file=position.file, record=position.record, **fields)


class FileCutShort(DatastreamError):  # noqa: N818 - named for what happened
    """The file ends inside a block, a line or its compression; earlier records were read."""

    fix = "Copy the file again, or wait until it is written; Datastream never changes a file"


class FileDamaged(DatastreamError):  # noqa: N818 - named for what was found
    """Bytes of the file do not follow its format."""

    fix = (
        "Copy the file again; if the original is damaged too, remove it, set source.backfills for "
        "its table, and backfill its object in Datastream: without the setting no changed row "
        "is repaired"
    )


class FileDenied(DatastreamError):  # noqa: N818 - named for what was found
    """The file may not be read, and the folder around it may."""

    fix = (
        "Grant this principal read access to it: it is read when its stream partition starts again"
    )


class WrongSchema(DatastreamError):  # noqa: N818 - named for what was found
    """A field that Datastream writes is missing, or has a type that it never has."""

    fix = "Point the location at the path of a Datastream stream, and keep other files out of it"


class InvalidEvent(DatastreamError):  # noqa: N818 - named for what was found
    """A field has a value that Datastream's documentation does not allow."""

    fix = "Compare the record with Datastream's page 'Events and streams', and report it"


class UnknownReadMethod(DatastreamError):  # noqa: N818 - named for what was found
    """`read_method` is not one of a known source."""

    fix = "Use a stream from MySQL, Oracle, PostgreSQL, SQL Server, Salesforce or Tidegate"


class MissingSortKey(DatastreamError):  # noqa: N818 - named for what was found
    """A change has neither the fields that order its source's changes nor `sort_keys` with them."""

    fix = (
        "Changes without their place in the source's log cannot be ordered: set poison = "
        '"park" or remove the file, set source.backfills for the table, and backfill its object '
        "in Datastream: without the setting no changed row is repaired"
    )


class SortKeyMismatch(DatastreamError):  # noqa: N818 - named for what was found
    """`sort_keys` have another form than the source's, or contradict its metadata."""

    fix = "The record does not say which of the two holds: report it to Datastream's support"


class FileNamesCollide(DatastreamError):  # noqa: N818 - named for what was found
    """Two files of one minute have one name in a position."""

    fix = "Copy one of the two under another name in the same folder, and remove the original"


class MisplacedFile(DatastreamError):  # noqa: N818 - named for what was found
    """A file is not in the folder of a minute, `yyyy/mm/dd/hh/mm`."""

    fix = "Keep the folders as Datastream writes them: they say which files may still come"


class MixedSources(DatastreamError):  # noqa: N818 - named for what was found
    """Events of several sources, or of several logs of one source, are in one location."""

    fix = "Give each stream a path of its own: events of two sources have no common order"


class IncompleteRow(DatastreamError):  # noqa: N818 - named for what was found
    """An UPDATE of Spanner has the changed columns alone, and events may come out of order."""

    fix = (
        "Use a change stream with value_capture_type NEW_ROW or NEW_ROW_AND_OLD_VALUES; for what "
        'was written without, set poison = "park" or remove the file, and backfill the table'
    )


class MissingKeyColumn(DatastreamError):  # noqa: N818 - named for what was found
    """An event names a key column that its row does not have."""

    fix = (
        "Let the stream in Datastream have all columns of the primary key; for what was written "
        'without, set poison = "park" or remove the file, set source.backfills for the table, '
        "and backfill its object"
    )
