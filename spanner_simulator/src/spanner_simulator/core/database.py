"""One database: schema, rows, transactions and change streams, kept consistent with each other.

Every method is one atomic step; the caller passes the time and calls from one thread only.  So
transactions are validated and commit as under one lock, and all readers of change streams see the
same order.  State that must survive a restart goes to `journal` within the same step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import assert_never

from spanner_simulator.core.change_streams.assembly import CommitFacts
from spanner_simulator.core.change_streams.change_streams import ChangeStreams
from spanner_simulator.core.equal_timestamps import EqualTimestamps
from spanner_simulator.core.journal import (
    Journal,
    JournaledCommit,
    JournaledSchema,
    JournaledTurn,
    JournalEntry,
)
from spanner_simulator.core.journaled_rows import journaled_change, replay_change
from spanner_simulator.core.rng import Rng
from spanner_simulator.core.rows.expressions import (
    Expressions,
    IdentityCounts,
    NoExpressions,
)
from spanner_simulator.core.rows.incoming_rows import Evaluation, write_plan
from spanner_simulator.core.rows.key_sets import KeySet
from spanner_simulator.core.rows.known_transactions import KnownTransactions
from spanner_simulator.core.rows.mutations import Mutation, RowChange
from spanner_simulator.core.rows.row_store import RowStore
from spanner_simulator.core.rows.row_writer import RowWriter
from spanner_simulator.core.rows.schema_changes import BackFill
from spanner_simulator.core.rows.storage import VERSION_RETENTION_US, KeyRange
from spanner_simulator.core.rows.transactions import Transaction
from spanner_simulator.core.rows.write_set import WriteSet
from spanner_simulator.core.schema import statements as ddl
from spanner_simulator.core.schema.analysis import Analysis
from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.ddl import parse_ddl
from spanner_simulator.core.schema.schema_objects import Table
from spanner_simulator.core.schema.statement_rules import apply_statement
from spanner_simulator.core.timestamps import CommitClock, format_us
from spanner_simulator.core.values import Dialect, Row
from spanner_simulator.errors import (
    Code,
    SpannerError,
    failed_precondition,
    invalid_argument,
    invariant,
)

_EXPIRED_ROWS_PER_COMMIT = 1_000


@dataclass(frozen=True, slots=True)
class DatabaseSettings:
    """The settings that a simulator chooses for its databases."""

    stream_partitions: int = 2
    equal_timestamp_probability: float = 0.0


class Database:
    """One database.  Raises `SpannerError` for everything that the service rejects."""

    def __init__(
        self,
        name: str,
        chance: Rng,
        settings: DatabaseSettings,
        dialect: Dialect = "GOOGLE_STANDARD_SQL",
        *,
        expressions: Expressions | None = None,
        analysis: Callable[[Catalogue], Analysis] | None = None,
    ) -> None:
        """`expressions` computes defaults, generated columns and checks; without it none can be.

        `analysis` makes what refuses invalid ones; see `Catalogue`.
        """
        self.name = name
        self.catalogue = Catalogue(dialect, analysis=analysis)
        self.clock = CommitClock()
        self.journal = Journal(chance)
        self.streams = ChangeStreams(
            self.catalogue,
            self.clock,
            self.journal.chance,
            journal=self.journal,
        )
        self._timestamps = EqualTimestamps(self.clock, chance, settings.equal_timestamp_probability)
        self._store = RowStore()
        self._chance = chance
        self._settings = settings
        self._expressions = expressions or NoExpressions()
        self._counts = IdentityCounts()
        self._transactions = KnownTransactions(chance)
        # The back-fills of the last replayed statement.
        self._owed: list[BackFill] = []

    @property
    def commit_number(self) -> int:
        """Number of committed transactions."""
        return self._store.commit_number

    def _evaluation(self, now_us: int) -> Evaluation:
        at_us = self.clock.next_us(now_us)
        return Evaluation(self._expressions, self.catalogue.dialect, at_us, self._counts)

    # -- schema

    def apply_ddl(
        self,
        statements: Sequence[ddl.Statement | str],
        *,
        now_us: int,
        proto_descriptors: bytes = b"",
    ) -> list[int]:
        """Apply statements one after the other; the commit timestamp of each.

        The first rejection ends it; earlier statements stay applied, as with the real service.
        Text is parsed completely before anything is applied; a journal can keep only text.
        `proto_descriptors` as in `apply_statement`.
        """
        parsed = [
            (parse_ddl(statement, self.catalogue.dialect), statement)
            if isinstance(statement, str)
            else (statement, None)
            for statement in statements
        ]
        return [
            self._apply_statement(statement, text, now_us, _needed_by(statement, proto_descriptors))
            for statement, text in parsed
        ]

    def _apply_statement(
        self, statement: ddl.Statement, text: str | None, now_us: int, proto_descriptors: bytes
    ) -> int:
        at_us = self.clock.next_us(now_us)
        invariant(text is not None or not self.journal.is_heard, "DDL came without its text")
        self.journal.begin_step()
        count = self._settings.stream_partitions
        fills = self._change_schema(
            statement, at_us, proto_descriptors=proto_descriptors, stream_partitions=count
        )
        drawn = self.journal.chance.drawn
        self.journal.note(JournaledSchema(text or "", at_us, count, drawn, proto_descriptors))
        self._back_fill(fills, at_us)
        return at_us

    def _change_schema(
        self,
        statement: ddl.Statement,
        at_us: int,
        *,
        proto_descriptors: bytes,
        stream_partitions: int,
    ) -> list[BackFill]:
        catalogue = self.catalogue
        tables, indexes = dict(catalogue.tables), dict(catalogue.indexes)
        fills: list[BackFill] = []
        with catalogue.restored_on_error():
            apply_statement(catalogue, statement, now_us=at_us, proto_descriptors=proto_descriptors)
            if catalogue.tables != tables or catalogue.indexes != indexes:
                fills = self._store.follow_schema(catalogue, self._evaluation(at_us), at_us=at_us)
        self._counts.follow(catalogue.tables.values())
        self.clock.schema_changed(at_us)
        self.streams.follow_schema(self._store.tables, at_us=at_us, initial_count=stream_partitions)
        return fills

    def _back_fill(self, fills: Sequence[BackFill], now_us: int) -> None:
        """Write the defaults of new columns, which change streams report like any other change."""
        if not fills:
            return
        transaction = self.begin()
        transaction.is_system = True
        writes = self._store.new_writes()
        for fill in fills:
            writes.update(fill.rules, fill.key, fill.row, fill.columns)
        self._commit_writes(transaction, writes, now_us)

    # -- transactions

    def begin(self, *, read_us: int | None = None, tag: str = "") -> Transaction:
        """Start a transaction: read-write, or read-only at `read_us`."""
        return self._transactions.begin(begun_at=self.commit_number, read_us=read_us, tag=tag)

    def transaction(self, transaction_id: bytes) -> Transaction:
        """A transaction by its id; NOT_FOUND or ABORTED if it cannot go on."""
        return self._transactions.find(transaction_id)

    def rollback(self, transaction_id: bytes) -> None:
        """End a transaction without effect; unknown ones are ignored, as clients expect."""
        self._transactions.roll_back(transaction_id)

    def _check_writable(self, transaction: Transaction, verb: str) -> None:
        self._transactions.check_writable(transaction, verb)
        if transaction.writes is not None and transaction.writes.rules is not self._store.rules:
            raise self._transactions.abort(transaction, "the schema has changed")

    def execute(
        self, transaction: Transaction, mutations: Sequence[Mutation], *, now_us: int | None = None
    ) -> int:
        """Apply the mutations of a DML statement to the transaction's rows; the number of rows.

        Only its own later reads see them.  If one is rejected (ALREADY_EXISTS, NOT_FOUND, a
        constraint) the statement has no effect and the transaction goes on.  The rows that it
        examined must be unchanged at the commit.  `now_us` is the time for expressions.
        """
        writes = self._writes_of(transaction)
        evaluation = self._evaluation(self.clock.last_commit_us if now_us is None else now_us)
        writer = RowWriter(writes, evaluation, reader=transaction, commit_number=self.commit_number)
        return writer.apply(mutations)

    def _writes_of(self, transaction: Transaction) -> WriteSet:
        self._check_writable(transaction, "write in")
        if transaction.writes is None:
            transaction.writes = self._store.new_writes()
        return transaction.writes

    @contextmanager
    def whole_statement(self, transaction: Transaction) -> Iterator[None]:
        """Undo all executed parts of a statement if a later part is rejected."""
        writes = self._writes_of(transaction)
        mark = writes.mark()
        try:
            yield
        except SpannerError:
            writes.roll_back_to(mark)
            raise

    def row_to_write(self, transaction: Transaction, table: Table, key: bytes) -> Row | None:
        """A row for a DML statement, with PENDING in place of the commit timestamp."""
        writes, name = self._writes_of(transaction), table.name.lower()
        if not writes.is_touched(name, key):
            transaction.note_key(name, key, commit_number=self.commit_number)
        return writes.row(name, key)

    def with_key(self, table: Table, key_values: Row, *, now_us: int) -> Row:
        """A new row with the key columns that it does not name: defaults, and generated ones."""
        plan = write_plan(self._store.rules[table.name.lower()], tuple(key_values), "insert")
        row = dict(key_values)
        plan.fill_key(row, "insert", self._evaluation(now_us))
        return row

    def next_identity(self, table: Table, column: str) -> int:
        """The value of DEFAULT for an identity column."""
        return self._counts.draw(table, table.column(column))

    def commit(
        self, transaction: Transaction, mutations: Sequence[Mutation], *, now_us: int
    ) -> int:
        """Commit and return the commit timestamp in microseconds.

        ABORTED if something that was read has changed.  A second commit of a committed transaction
        returns the same timestamp, so a client may repeat one whose answer it lost.
        """
        if transaction.state == "COMMITTED":
            return transaction.commit_us
        self._check_writable(transaction, "commit")
        conflict = transaction.conflict(self._store.tables)
        if conflict is not None:
            raise self._transactions.abort(
                transaction, f"something it read in {conflict} has changed"
            )
        writes = transaction.writes or self._store.new_writes()
        mark = writes.mark()
        try:
            if mutations:
                # Rows read now may forbid it to share a timestamp; no commit comes between.
                reader = transaction if self._timestamps.are_wanted else None
                RowWriter(
                    writes,
                    self._evaluation(now_us),
                    reader=reader,
                    commit_number=self.commit_number,
                ).apply(mutations)
            return self._commit_writes(transaction, writes, now_us)
        except SpannerError:
            writes.roll_back_to(mark)
            raise

    def _commit_writes(self, transaction: Transaction, writes: WriteSet, now_us: int) -> int:
        commit_us = self._timestamps.choose_us(transaction, writes, now_us)
        writes.resolve(commit_us * 1000)
        facts = CommitFacts(
            commit_us,
            # Fixed width, so that text order is commit order also within one timestamp.
            f"{self.commit_number + 1:020d}",
            transaction.tag,
            transaction.is_system,
        )
        changes = writes.changes()
        is_excluded = transaction.exclude_from_streams
        if self.journal.is_heard:
            # Before anything else, because a step that cannot be recorded must not happen.
            self.journal.note(self._entry(facts, changes, is_excluded=is_excluded))
        self._timestamps.committed(commit_us, writes, number=self.commit_number + 1)
        self._transactions.commit(transaction, commit_us)
        self._store.store(writes, commit_us=commit_us)
        self.streams.publish(changes, facts, is_excluded=is_excluded)
        return commit_us

    def _entry(
        self, facts: CommitFacts, changes: Sequence[RowChange], *, is_excluded: bool
    ) -> JournaledCommit:
        return JournaledCommit(
            facts.commit_timestamp_us,
            self.commit_number + 1,
            facts.transaction_tag,
            facts.is_system_transaction,
            is_excluded,
            tuple(journaled_change(change) for change in changes),
            self._counts.take_drawn(),
        )

    def expire_rows(self, now_us: int) -> int:
        """Delete the rows that a row deletion policy expires; return their number.

        Each commit is a system transaction.  A row that children prevent from deletion stays.
        """
        count = 0
        for name, keys in list(self._store.due_rows(now_us)):
            for start in range(0, len(keys), _EXPIRED_ROWS_PER_COMMIT):
                count += self._expire(name, keys[start : start + _EXPIRED_ROWS_PER_COMMIT], now_us)
        return count

    def _expire(self, name: str, keys: Sequence[bytes], now_us: int) -> int:
        transaction = self.begin(tag="RowDeletionPolicy")
        transaction.is_system = True
        writes = self._store.new_writes()
        writer = RowWriter(writes, self._evaluation(now_us))
        count = sum(writer.try_to_delete(name, key) for key in keys)
        if count:
            self._commit_writes(transaction, writes, now_us)
        else:
            self.rollback(transaction.transaction_id)
        return count

    # -- replaying

    def replay(self, entry: JournalEntry) -> None:
        """Repeat the step of a journal's entry, in a database that is not served yet.

        Call `end_replay` after the last one.  INVALID_ARGUMENT, or another `SpannerError`, if the
        entry does not fit the database.
        """
        self.journal.is_replaying = True
        self._owed = []
        try:
            match entry:
                case JournaledSchema():
                    self.journal.chance.begin(entry.draws)
                    statement = parse_ddl(entry.text, self.catalogue.dialect)
                    # Back-fills follow as separate commits, unless the journal ends here.
                    self._owed = self._change_schema(
                        statement,
                        entry.at_us,
                        proto_descriptors=entry.proto_descriptors,
                        stream_partitions=entry.stream_partitions,
                    )
                case JournaledCommit():
                    self._replay_commit(entry)
                case JournaledTurn():
                    self.journal.chance.begin(entry.draws)
                    self.streams.replay(entry)
                case _:
                    assert_never(entry)
            if not self.journal.chance.is_spent:
                raise invalid_argument("A journal's entry has other draws than it needs.")
        finally:
            self.journal.is_replaying = False
            self.journal.chance.begin()

    def end_replay(self, *, now_us: int) -> None:
        """Complete the last entry's step, which the end of the process interrupted."""
        self._back_fill(self._owed, now_us)
        self._owed = []

    def _replay_commit(self, entry: JournaledCommit) -> None:
        writes = self._store.new_writes()
        for change in entry.changes:
            replay_change(writes, change)
        self._store.commit_number = entry.number - 1
        self._counts.next |= entry.counts
        self.clock.committed(entry.commit_us)
        self.clock.close(entry.commit_us)
        facts = CommitFacts(entry.commit_us, f"{entry.number:020d}", entry.tag, entry.is_system)
        changes = writes.changes()
        self._store.store(writes, commit_us=entry.commit_us)
        self.streams.publish(changes, facts, is_excluded=entry.is_excluded)

    # -- reading

    def close_read(self, timestamp_us: int, *, now_us: int) -> None:
        """Make a past time readable for good; FAILED_PRECONDITION if its versions are gone."""
        self.check_versions(timestamp_us, now_us=now_us)
        self.clock.close(timestamp_us)

    def check_versions(self, timestamp_us: int, *, now_us: int) -> None:
        """FAILED_PRECONDITION if the versions of rows at a past time may be gone."""
        if timestamp_us < now_us - VERSION_RETENTION_US:
            raise failed_precondition(
                f"Read-only transaction timestamp {format_us(timestamp_us)} has exceeded the "
                "maximum timestamp staleness",
            )

    def index_table(self, table: Table, index: str) -> Table:
        """The hidden table of a secondary index, with the columns that a read by it may return."""
        return self._store.index(table, index).table

    def read(
        self,
        table: Table,
        keys: KeySet,
        *,
        transaction: Transaction | None,
        read_us: int | None,
        limit: int = 0,
        index: str | None = None,
        columns: Sequence[str] = (),
    ) -> list[Row]:
        """Rows of a key set in key order, at a time or (None) inside a read-write transaction.

        With an index the keys are the index's, and rows have the columns of `index_table`.
        `columns` are the columns that the caller uses: they must not await their commit, and must
        have existed at the time.
        """
        hidden = self._store.index(table, index) if index else None
        source = table if hidden is None else hidden.table
        self._store.check_readable(source, columns, transaction=transaction, read_us=read_us)
        return self._store.read(
            table, keys, transaction=transaction, read_us=read_us, limit=limit, index=hidden
        )

    def scan(
        self,
        table: Table,
        where: KeyRange,
        *,
        transaction: Transaction | None,
        read_us: int | None,
        columns: Sequence[str] = (),
    ) -> list[tuple[bytes, Row]]:
        """Rows of a range of encoded keys, with their keys; `columns` as in `read`.

        For queries: a column that did not exist at the time is an INVALID_ARGUMENT.
        """
        try:
            self._store.check_readable(table, columns, transaction=transaction, read_us=read_us)
        except SpannerError as error:
            if error.code is Code.NOT_FOUND:
                raise invalid_argument(error.message) from error
            raise
        return self._store.scan(table, where, transaction=transaction, read_us=read_us)


def _needed_by(statement: ddl.Statement, proto_descriptors: bytes) -> bytes:
    return proto_descriptors if isinstance(statement, ddl.CreateProtoBundle) else b""
