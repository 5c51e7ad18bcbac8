"""How Datastream read an event, and from which kind of source: the field `read_method`.

Documented and real values differ: PostgreSQL's changes are documented as `postgres-cdc-wal`, and
files hold `postgresql-cdc`.  Both are read.  Backfills are documented by the beginning of the
value.  Spanner's values occur only in files that Tidegate writes.

`cdc` and `backfill` name no source.  MySQL uses them for streams that follow global transaction
identifiers; its metadata identify MySQL. MongoDB uses them too, and is not supported.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache


class SourceKind(StrEnum):
    """The kind of database that a stream reads."""

    MYSQL = "mysql"
    ORACLE = "oracle"
    POSTGRESQL = "postgresql"
    SQL_SERVER = "sqlserver"
    SALESFORCE = "salesforce"
    SPANNER = "spanner"
    """In Tidegate's own files only; Datastream does not read Spanner."""


class ReadKind(StrEnum):
    """Whether an event is a change, or a row of a backfill."""

    CDC = "cdc"
    BACKFILL = "backfill"
    SUPPLEMENTATION = "supplementation"
    """Read after a transaction was rolled back during CDC; only for Oracle."""


_EXACT = {
    "mysql-cdc-binlog": (SourceKind.MYSQL, ReadKind.CDC),
    "oracle-cdc-logminer": (SourceKind.ORACLE, ReadKind.CDC),
    "oracle-supplementation": (SourceKind.ORACLE, ReadKind.SUPPLEMENTATION),
    # In files from before 2021.
    "oracle_dump": (SourceKind.ORACLE, ReadKind.BACKFILL),
    "postgres-cdc-wal": (SourceKind.POSTGRESQL, ReadKind.CDC),
    "postgresql-cdc": (SourceKind.POSTGRESQL, ReadKind.CDC),
    "sqlserver-cdc": (SourceKind.SQL_SERVER, ReadKind.CDC),
    "salesforce-cdc": (SourceKind.SALESFORCE, ReadKind.CDC),
    "spanner-cdc": (SourceKind.SPANNER, ReadKind.CDC),
}
_ANY_SOURCE = {"cdc": ReadKind.CDC, "backfill": ReadKind.BACKFILL}
_MYSQL_FIELDS = frozenset(("binlog_file", "binlog_position", "gtid", "log_position"))
"""Fields of metadata that no other source has."""
_BACKFILLS = {f"{kind.value}-backfill": kind for kind in SourceKind}

KNOWN_METHODS = (
    *_EXACT,
    *(f"{start}…" for start in _BACKFILLS),
    *(f"{method} (of MySQL)" for method in _ANY_SOURCE),
)
"""The known read methods, for messages; `…` is any text."""


@dataclass(frozen=True, slots=True)
class ReadMethod:
    """A `read_method`, its source and its kind."""

    text: str
    source: SourceKind
    kind: ReadKind


def read_method_of(text: str, metadata: Collection[str] = ()) -> ReadMethod | None:
    """Return the read method of a text; None if it is unknown.

    `metadata` are the names in `source_metadata`, which identify the source if the text does not.
    """
    if text not in _ANY_SOURCE:
        return _method_of(text)
    is_table = "table" in metadata and "database" in metadata and "schema" not in metadata
    if is_table or not _MYSQL_FIELDS.isdisjoint(metadata):
        return ReadMethod(text, SourceKind.MYSQL, _ANY_SOURCE[text])
    return None


@lru_cache(64)
def _method_of(text: str) -> ReadMethod | None:
    if text in _EXACT:
        return ReadMethod(text, *_EXACT[text])
    for start, source in _BACKFILLS.items():
        if text.startswith(start):
            return ReadMethod(text, source, ReadKind.BACKFILL)
    return None
