"""Servers of MySQL in the order in which they took over, by their GTIDs.

A GTID counts the transactions of one server, so those of two have no common order.  The operator
knows which server followed which: transactions of a later entry of the list sort after those of the
ones before it.  The first server's order keys are those that they are without a list.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tidegate.producer.datastream.event import Event
from tidegate.producer.datastream.log_positions import gtid_of_log, log_of_mysql
from tidegate.producer.datastream.metadata import MySqlMetadata
from tidegate.producer.datastream.read_methods import ReadKind

_RANK_SHIFT = 60
"""Above every number of a transaction, which has 18 digits at most; leaves 16 ranks."""


@dataclass(frozen=True, slots=True)
class ServerOrder:
    """What `source.servers` says; without entries nothing is different."""

    entries: tuple[tuple[str, int], ...] = ()
    """Servers, each with the number of its first transaction there."""

    @classmethod
    def of(cls, texts: Iterable[str]) -> ServerOrder:
        """Take the setting's entries: a server's UUID, or the GTID from which on it is meant."""
        found = (gtid_of_log(text) or gtid_of_log(f"{text}:0") for text in texts)
        return cls(tuple(one for one in found if one is not None))

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
        """Return as `log_of_mysql`; for all transactions that are listed, what the first has."""
        if gtid is None or self._rank(gtid) is None:
            return log_of_mysql(log_file, gtid)
        return f"gtid {self.entries[0][0]}"

    def _rank(self, gtid: str) -> int | None:
        """Return the place of a transaction's server in the list; None if it has none."""
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
