"""One database: schema, rows, transactions and change streams, kept consistent with each other.

Every method is one atomic step; the caller passes the time and calls from one thread only. That is
the one lock under which transactions are validated and commit, and it gives all readers of change
streams the same order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidegate.spanner_simulator.core.change_streams.assembly import CommitFacts
from tidegate.spanner_simulator.core.change_streams.change_streams import ChangeStreams
from tidegate.spanner_simulator.core.rows.mutations import KeySet, Mutation, WriteSet, key_range
from tidegate.spanner_simulator.core.rows.mutations import whole_key as encode_whole_key
from tidegate.spanner_simulator.core.rows.storage import VERSION_RETENTION_US, KeyRange, TableRows
from tidegate.spanner_simulator.core.rows.transactions import Transaction
from tidegate.spanner_simulator.core.schema.catalogue import Catalogue
from tidegate.spanner_simulator.core.timestamps import CommitClock, format_us
from tidegate.spanner_simulator.errors import Code, SpannerError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.spanner_simulator.core.change_streams.stream_partitions import Chance
    from tidegate.spanner_simulator.core.schema import statements as ddl
    from tidegate.spanner_simulator.core.schema.schema_objects import Table
    from tidegate.spanner_simulator.core.values import Dialect, Row

__all__ = ["Database", "DatabaseSettings"]

_FINISHED_TRANSACTIONS_MAX = 10_000
# Clients simply forget read-only transactions; the oldest of this many cannot be in use any more.
_TRANSACTIONS_MAX = 100_000
_RETRY_DELAY_MS = 5


@dataclass(frozen=True, slots=True)
class DatabaseSettings:
    """What a simulator decides for its databases."""

    stream_partitions: int = 2
    equal_timestamp_probability: float = 0.0


@dataclass(slots=True)
class _Instant:
    """The transactions that share the last commit timestamp: what the next one must not touch."""

    first_commit_number: int = 0
    written: set[tuple[str, bytes]] = field(default_factory=set)


class Database:
    """See the module. Raises `SpannerError` for whatever the service would refuse."""

    def __init__(
        self,
        name: str,
        chance: Chance,
        settings: DatabaseSettings,
        dialect: Dialect = "GOOGLE_STANDARD_SQL",
    ) -> None:
        self.name = name
        self.catalogue = Catalogue(dialect)
        self.clock = CommitClock()
        self.streams = ChangeStreams(
            self.catalogue, self.clock, chance, initial_count=settings.stream_partitions
        )
        self.commit_number = 0
        self._rows: dict[str, TableRows] = {}
        self._chance = chance
        self._settings = settings
        self._transactions: dict[bytes, Transaction] = {}
        self._finished: dict[bytes, int] = {}
        self._last_transaction = 0
        self._instant = _Instant()

    # -- schema

    def apply_ddl(self, statements: Sequence[ddl.Statement], *, now_us: int) -> list[int]:
        """Apply statements one after the other; the commit timestamp of each.

        The first refusal ends it; what came before stays, as with the real service.
        """
        timestamps: list[int] = []
        for statement in statements:
            at_us = self.clock.next_us(now_us)
            self.catalogue.apply(statement, now_us=at_us)
            self.clock.close(at_us)
            self._follow_schema(at_us)
            timestamps.append(at_us)
        return timestamps

    def _follow_schema(self, at_us: int) -> None:
        catalogue = self.catalogue
        for name in catalogue.tables.keys() - self._rows.keys():
            self._rows[name] = TableRows()
        for name in self._rows.keys() - catalogue.tables.keys():
            del self._rows[name]
        self.streams.follow_schema(self._rows, at_us=at_us)

    # -- transactions

    def begin(self, *, read_us: int | None = None, tag: str = "") -> Transaction:
        """Start a transaction: read-write, or read-only at `read_us`."""
        self._last_transaction += 1
        transaction = Transaction(
            b"%d-%08x" % (self._last_transaction, self._chance.getrandbits(32)),
            self.commit_number,
            read_us,
            tag,
        )
        self._transactions[transaction.transaction_id] = transaction
        if len(self._transactions) > _TRANSACTIONS_MAX:
            oldest = next(iter(self._transactions))
            del self._transactions[oldest]
            self._finished.pop(oldest, None)
        return transaction

    def transaction(self, transaction_id: bytes) -> Transaction:
        """An active transaction; ABORTED, NOT_FOUND or FAILED_PRECONDITION when it is none."""
        transaction = self._transactions.get(transaction_id)
        if transaction is None:
            raise SpannerError(
                Code.NOT_FOUND,
                f"Transaction was not found: {transaction_id.decode(errors='replace')}",
            )
        if transaction.state == "ABORTED":
            raise _aborted("Transaction was aborted")
        return transaction

    def rollback(self, transaction_id: bytes) -> None:
        """End a transaction without effect; unknown ones are ignored, as clients expect."""
        transaction = self._transactions.get(transaction_id)
        if transaction is not None and transaction.state == "ACTIVE":
            transaction.state = "ROLLED_BACK"
            self._finish(transaction, 0)

    def _finish(self, transaction: Transaction, commit_us: int) -> None:
        transaction.key_reads.clear()
        transaction.range_reads.clear()
        self._finished[transaction.transaction_id] = commit_us
        if len(self._finished) > _FINISHED_TRANSACTIONS_MAX:
            oldest = next(iter(self._finished))
            del self._finished[oldest]
            self._transactions.pop(oldest, None)

    def commit(
        self, transaction: Transaction, mutations: Sequence[Mutation], *, now_us: int
    ) -> int:
        """Commit and return the commit timestamp in microseconds.

        ABORTED when something read has changed. A second commit of a committed transaction
        returns the same timestamp, so a client may repeat one whose answer it lost.
        """
        if transaction.state == "COMMITTED":
            return self._finished[transaction.transaction_id]
        if transaction.is_read_only:
            raise SpannerError(Code.FAILED_PRECONDITION, "Cannot commit a read-only transaction.")
        if transaction.state != "ACTIVE":
            raise SpannerError(
                Code.FAILED_PRECONDITION, "Cannot commit a transaction that was rolled back."
            )
        conflict = transaction.conflict(self._rows)
        if conflict is not None:
            transaction.state = "ABORTED"
            self._finish(transaction, 0)
            raise _aborted(f"Transaction was aborted: something it read in {conflict} has changed")
        commit_us, writes = self._prepare(transaction, mutations, now_us)
        if commit_us != self.clock.last_commit_us:
            self._instant = _Instant(self.commit_number + 1)
        self.commit_number += 1
        self.clock.committed(commit_us)
        touched = writes.touched
        self._instant.written.update(touched)
        for (table, key), row in touched.items():
            self._rows[table].write(key, row, commit_us=commit_us, commit_number=self.commit_number)
        transaction.state = "COMMITTED"
        self._finish(transaction, commit_us)
        # Fixed width, so that text order is commit order also within one timestamp.
        facts = CommitFacts(commit_us, f"{self.commit_number:020d}", transaction.tag)
        self.streams.publish(writes.changes, facts, is_excluded=transaction.exclude_from_streams)
        return commit_us

    def _prepare(
        self, transaction: Transaction, mutations: Sequence[Mutation], now_us: int
    ) -> tuple[int, WriteSet]:
        """Choose the timestamp and apply the mutations under it.

        Sharing the last timestamp needs a transaction that had begun before it was used, and
        rows that none of its sharers wrote: otherwise the order of the two could be observed.
        """
        may_share = (
            self._settings.equal_timestamp_probability > 0
            and self.clock.is_last_open()
            and transaction.begun_at < self._instant.first_commit_number
            and not transaction.has_read_any(self._instant.written)
            and self._chance.random() < self._settings.equal_timestamp_probability
        )
        if may_share:
            writes = self._apply(mutations, self.clock.last_commit_us)
            if self._instant.written.isdisjoint(writes.touched):
                return self.clock.last_commit_us, writes
        commit_us = self.clock.next_us(now_us)
        return commit_us, self._apply(mutations, commit_us)

    def _apply(self, mutations: Sequence[Mutation], commit_us: int) -> WriteSet:
        writes = WriteSet(self.catalogue, self._rows, commit_timestamp_us=commit_us)
        for mutation in mutations:
            writes.apply(mutation)
        return writes

    # -- reading

    def close_read(self, timestamp_us: int, *, now_us: int) -> None:
        """Make a past time readable for good; FAILED_PRECONDITION when its versions are gone."""
        if timestamp_us < now_us - VERSION_RETENTION_US:
            raise SpannerError(
                Code.FAILED_PRECONDITION,
                f"Read timestamp {format_us(timestamp_us)} is older than the version retention "
                "period of 1 hour.",
            )
        self.clock.close(timestamp_us)

    def read(
        self,
        table: Table,
        keys: KeySet,
        *,
        transaction: Transaction | None,
        read_us: int | None,
        limit: int = 0,
    ) -> list[Row]:
        """Rows of a key set in key order, at a time or (None) inside a read-write transaction."""
        name = table.name.lower()
        rows = self._rows[name]
        found: dict[bytes, Row] = {}
        for plain in keys.keys:
            key = encode_whole_key(table, plain)
            if transaction is not None and read_us is None:
                transaction.note_key(name, key, commit_number=self.commit_number)
            row = rows.read(key, read_us)
            if row is not None:
                found[key] = row
        for span in [None] if keys.everything else keys.spans:
            where = key_range(table, span)
            found.update(self.scan(table, where, transaction=transaction, read_us=read_us))
        ordered = [found[key] for key in sorted(found)]
        return ordered[:limit] if limit > 0 else ordered

    def scan(
        self,
        table: Table,
        where: KeyRange,
        *,
        transaction: Transaction | None,
        read_us: int | None,
    ) -> list[tuple[bytes, Row]]:
        """Rows of a range of encoded keys, with their keys."""
        name = table.name.lower()
        if transaction is not None and read_us is None:
            transaction.note_range(name, where, commit_number=self.commit_number)
        return list(self._rows[name].scan(where, read_us))


def _aborted(message: str) -> SpannerError:
    return SpannerError(Code.ABORTED, message, retry_delay_ms=_RETRY_DELAY_MS)
