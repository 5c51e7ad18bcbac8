"""Settings of a source: key columns of tables, places of later backfills, the order of its servers.

A row of a backfill is before every change, since a backfill runs next to the changes that its rows
may lack.  So one that is started to repair a table (a file was lost) changes no row that has a
change.  It can, if the settings say which changes its rows include: every row that was read at
`since` or later has all changes that the source committed before `since`.  The log that was begun
at that time has none of them.  Sources that order their changes by time need no log.

A GTID of MySQL counts the transactions of one server, so those of two have no common order.  The
operator knows which server followed which: transactions of a later entry of the list sort after
those of the ones before it.  The first server's order keys are equal with and without a list.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tidegate.producer.datastream.errors import MissingKeyColumn, MissingSortKey
from tidegate.producer.datastream.event import Event
from tidegate.producer.datastream.event_order import (
    gtid_of_log,
    log_of_mysql,
    order_after_log,
    order_after_time,
)
from tidegate.producer.datastream.event_records import table_name
from tidegate.producer.datastream.metadata import MySqlMetadata
from tidegate.producer.datastream.read_methods import ReadKind, SourceKind

_RANK_SHIFT = 60
"""Above every number of a transaction, which has 18 digits at most; leaves 16 ranks."""


@dataclass(frozen=True, slots=True)
class ServerOrder:
    """The setting `source.servers`; without entries it has no effect."""

    entries: tuple[tuple[str, int], ...] = ()
    """Servers, each with the number of the first transaction to which its entry applies."""

    @classmethod
    def of(cls, texts: Iterable[str]) -> ServerOrder:
        """Parse the setting's entries: a server's UUID, or the GTID from which on it applies."""
        places = (gtid_of_log(text) or gtid_of_log(f"{text}:0") for text in texts)
        return cls(tuple(place for place in places if place is not None))

    def applied(self, event: Event) -> Event:
        """Return an event with its place among the servers, if it has one."""
        gtid = _gtid_of(event)
        if not self.entries or gtid is None:
            return event
        return replace(event, order_key=self.ranked(event.order_key, gtid))

    def ranked(self, order_key: bytes, gtid: str) -> bytes:
        """Return the order key of a place by a GTID, with the rank of its server."""
        rank = self._rank(gtid)
        if not rank:
            return order_key
        number = int.from_bytes(order_key[1:9], "big") + (rank << _RANK_SHIFT)
        return order_key[:1] + number.to_bytes(8, "big") + order_key[9:]

    def log_of(self, log_file: str | None, gtid: str | None) -> str:
        """Return as `log_of_mysql` does; listed transactions have the log of the first server."""
        if gtid is None or self._rank(gtid) is None:
            return log_of_mysql(log_file, gtid)
        return f"gtid {self.entries[0][0]}"

    def _rank(self, gtid: str) -> int | None:
        """Return the place of a transaction's server in the list; None if it is not listed."""
        server, number = gtid_of_log(gtid) or ("", 0)
        ranks = [
            rank
            for rank, (listed, first) in enumerate(self.entries)
            if listed == server and first <= number
        ]
        return ranks[-1] if ranks else None


def _gtid_of(event: Event) -> str | None:
    is_change = event.read_method.kind is ReadKind.CDC
    return event.metadata.gtid if is_change and isinstance(event.metadata, MySqlMetadata) else None


_TIME_ORDERED = (SourceKind.POSTGRESQL, SourceKind.SQL_SERVER, SourceKind.SALESFORCE)


@dataclass(frozen=True, slots=True)
class LaterBackfill:
    """A backfill whose rows replace the results of earlier changes of the table."""

    since_us: int
    """Rows that Datastream read before this time belong to an earlier backfill."""
    log: str = ""
    """The log that MySQL or Oracle began before the backfill was started; otherwise empty."""


@dataclass(frozen=True, slots=True)
class TableSettings:
    """Settings by table (`table_name`), and the order of the source's servers."""

    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Key columns of tables whose events name none."""
    backfills: Mapping[str, LaterBackfill] = field(default_factory=dict)
    servers: ServerOrder = field(default_factory=ServerOrder)

    def applied(self, event: Event) -> Event:
        """Return an event with the key and the order key from the settings.

        Raises MissingKeyColumn for a row without a column of the key, and MissingSortKey for a row
        of a backfill whose place the settings do not give in the form that its source needs.
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
        """Return the base name of MySQL's log for an event's place by a setting, or an empty text.

        Numbers in another server's log do not apply.
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
    if source in _TIME_ORDERED and not later.log:
        return order_after_time(source, later.since_us)
    order_key = order_after_log(source, later.log)
    if source is SourceKind.SPANNER:
        message = f"source.backfills: leave {table} out: Spanner's rows have their place in events"
        raise MissingSortKey.at(event.position, message)
    if order_key is None:
        expected = {
            SourceKind.MYSQL: "the name of a binary log such as mysql-bin.000124, or a GTID",
            SourceKind.ORACLE: "the sequence number of a redo log",
        }.get(source, "left out: its source has no log that orders changes")
        raise MissingSortKey.at(
            event.position, f"source.backfills: log of {table} must be {expected}", log=later.log
        )
    return order_key
