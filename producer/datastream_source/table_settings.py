"""What the settings say of single tables: columns of the key, and the place of a later backfill.

A row of a backfill is before every change, since a backfill runs beside the changes that its rows
may lack.  So one that is started to repair a table (a file was lost) changes no row that has a
change.  It can, if the settings say what its rows have seen: every row that was read at `since` or
later has all changes that the source committed before that, which end where the log begins that
was begun then.  Sources that order their changes by time need no log.  Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tidegate.producer.datastream.errors import MissingKeyColumn, MissingSortKey
from tidegate.producer.datastream.event import Event
from tidegate.producer.datastream.log_positions import log_of_mysql
from tidegate.producer.datastream.order_key import order_after_log, order_after_time
from tidegate.producer.datastream.read_methods import ReadKind, SourceKind
from tidegate.producer.datastream_source.event_records import table_name
from tidegate.producer.datastream_source.server_order import ServerOrder

_BY_TIME = (SourceKind.POSTGRESQL, SourceKind.SQL_SERVER, SourceKind.SALESFORCE)


@dataclass(frozen=True, slots=True)
class LaterBackfill:
    """A backfill whose rows replace what the table's changes before it have left."""

    since_us: int
    """Rows that Datastream read before this time are of an earlier backfill."""
    log: str = ""
    """The log that MySQL or Oracle began before the backfill was started; else empty."""


@dataclass(frozen=True, slots=True)
class TableSettings:
    """Settings by table, as `table_name` has it, and the order of the source's servers."""

    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Key columns of tables whose events name none."""
    backfills: Mapping[str, LaterBackfill] = field(default_factory=dict)
    servers: ServerOrder = field(default_factory=ServerOrder)

    def applied(self, event: Event) -> Event:
        """Return an event with the key and the order key that the settings give it.

        Raises MissingKeyColumn for a row without a column of the key, and MissingSortKey for one of
        a backfill whose place the settings do not say as its source needs it.
        """
        if not self.keys and not self.backfills:
            return event
        table = table_name(event)
        key = self.keys.get(table)
        if key is not None and not event.metadata.key_columns:
            event = _with_key(event, table, key)
        later = self.backfills.get(table)
        if later is not None and _is_of(event, later):
            order_key = self.servers.ranked(_order_key(event, table, later), later.log)
            event = replace(event, order_key=order_key)
        return event

    def log_of(self, event: Event) -> str:
        """Return the base name of MySQL's log that an event's place is in by a setting, or empty.

        The number of a log of another server says nothing.
        """
        later = self.backfills.get(table_name(event)) if self.backfills else None
        if later is None or event.read_method.source is not SourceKind.MYSQL:
            return ""
        if not _is_of(event, later):
            return ""
        return self.servers.log_of(None, later.log) or log_of_mysql(later.log, None)


def _is_of(event: Event, later: LaterBackfill) -> bool:
    is_row = event.read_method.kind is ReadKind.BACKFILL
    return is_row and event.read_timestamp_us >= later.since_us


def _with_key(event: Event, table: str, key: tuple[str, ...]) -> Event:
    missing = [name for name in key if event.payload.get(name) is None]
    if missing:
        raise MissingKeyColumn.at(
            event.position,
            f"the row has no {', '.join(missing)}, of which source.keys make its key",
            table=table,
            key=list(key),
        )
    return replace(event, metadata=replace(event.metadata, primary_keys=key))


def _order_key(event: Event, table: str, later: LaterBackfill) -> bytes:
    source = event.read_method.source
    if source in _BY_TIME and not later.log:
        return order_after_time(source, later.since_us)
    found = order_after_log(source, later.log)
    if found is None:
        expected = {
            SourceKind.MYSQL: "the name of a binary log such as mysql-bin.000124, or a GTID",
            SourceKind.ORACLE: "the sequence number of a redo log",
        }.get(source, "left out: its source has no log that orders changes")
        raise MissingSortKey.at(
            event.position, f"source.backfills: log of {table} must be {expected}", log=later.log
        )
    return found
