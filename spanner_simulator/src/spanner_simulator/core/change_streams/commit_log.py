"""Ground truth: the effect of each transaction on the data that a change stream watches.

It is written from the transaction's own row changes with its own, simpler reading of the capture
rules; only coordinates (record sequence, mod number, stream partition) come from the assembly.  So
a change that the assembly missed is here with null coordinates.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from spanner_simulator.core.change_streams.assembly import Assembled, CommitFacts, is_captured
from spanner_simulator.core.rows.mutations import RowChange
from spanner_simulator.core.schema.schema_objects import (
    CaptureType,
    ChangeStream,
    Table,
)
from spanner_simulator.core.timestamps import format_us
from spanner_simulator.core.values import Plain, Row, encode


@dataclass(frozen=True, slots=True)
class LoggedChange:
    """One watched row change; `place` is (record sequence, mod number), None if missed."""

    change: RowChange
    tracked: tuple[str, ...]
    capture: CaptureType
    place: tuple[str, int] | None

    def as_json(self) -> dict[str, object]:
        """The object that the control port prints."""
        change, table = self.change, self.change.table
        after, before = change.new, change.old
        whole_row = self.capture in ("NEW_ROW", "NEW_ROW_AND_OLD_VALUES")
        has_old = self.capture in ("OLD_AND_NEW_VALUES", "NEW_ROW_AND_OLD_VALUES")
        touched = [name for name in self.tracked if name in change.written]
        if change.mod_type == "UPDATE":
            new_names = list(self.tracked) if whole_row else touched
            old_names = touched
        else:
            new_names = old_names = list(self.tracked)
        return {
            "table": table.name,
            "mod_type": change.mod_type,
            "keys": _columns(table, after or before or {}, table.key_names),
            "new_values": _columns(table, after, new_names) if after is not None else {},
            "old_values": _columns(table, before, old_names) if has_old and before else {},
            "record_sequence": self.place[0] if self.place else None,
            "mod_number": self.place[1] if self.place else None,
        }


def _columns(table: Table, row: Row | None, names: Collection[str]) -> dict[str, Plain]:
    return {
        column.name: encode(column.value_type, (row or {}).get(column.name))
        for column in table.columns
        if column.name in names
    }


@dataclass(frozen=True, slots=True)
class LoggedTransaction:
    """One transaction that changed watched data; `index` counts them from 0."""

    index: int
    facts: CommitFacts
    tokens: tuple[str, ...]
    changes: tuple[LoggedChange, ...]

    def as_json(self) -> dict[str, object]:
        """The object that the control port prints, one line per transaction."""
        return {
            "index": self.index,
            "commit_timestamp": format_us(self.facts.commit_timestamp_us),
            "commit_timestamp_us": self.facts.commit_timestamp_us,
            "server_transaction_id": self.facts.server_transaction_id,
            "tag": self.facts.transaction_tag,
            "stream_partition_tokens": list(self.tokens),
            "changes": [change.as_json() for change in self.changes],
        }


class CommitLog:
    """The transactions of one change stream in commit order; the oldest may be dropped."""

    __slots__ = ("_first", "transactions")

    def __init__(self) -> None:
        self.transactions: list[LoggedTransaction] = []
        self._first = 0

    def forget_before(self, timestamp_us: int) -> None:
        """Drop transactions older than a time; the numbers of the others stay the same."""
        count = bisect_left(
            self.transactions,
            timestamp_us,
            key=lambda transaction: transaction.facts.commit_timestamp_us,
        )
        del self.transactions[:count]
        self._first += count

    def note(
        self,
        stream: ChangeStream,
        changes: Sequence[RowChange],
        facts: CommitFacts,
        assembled: Assembled,
    ) -> None:
        """Add a transaction, unless the stream watches none of its changes."""
        logged: list[LoggedChange] = []
        for index, change in enumerate(changes):
            tracked = stream.tracked_columns(change.table)
            if tracked is None or not is_captured(stream, change, facts):
                continue
            if change.mod_type == "UPDATE" and change.written.isdisjoint(tracked):
                continue
            place = assembled.places.get(index)
            logged.append(LoggedChange(change, tracked, stream.capture_type, place))
        if not logged:
            return
        tokens = dict.fromkeys(partition.token for partition, _ in assembled.records)
        number = self._first + len(self.transactions)
        self.transactions.append(LoggedTransaction(number, facts, tuple(tokens), tuple(logged)))
