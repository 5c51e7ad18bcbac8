"""All rows of one database, of tables and of their indexes, and the rules that apply to them.

It follows the schema, returns the rows that a transaction or a read at a time may see, and stores
the writes of a commit.  The database handles time, random numbers, and who may commit when.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spanner_simulator.core.rows.incoming_rows import Evaluation
from spanner_simulator.core.rows.key_sets import KeySet, key_range, prefix_range, whole_key
from spanner_simulator.core.rows.schema_changes import BackFill, plan_rows
from spanner_simulator.core.rows.secondary_indexes import HiddenIndex
from spanner_simulator.core.rows.storage import KeyRange, TableRows
from spanner_simulator.core.rows.table_rules import Rules, build_rules
from spanner_simulator.core.rows.transactions import Transaction
from spanner_simulator.core.rows.write_set import WriteSet
from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.schema_objects import Table
from spanner_simulator.core.values import Row
from spanner_simulator.errors import Code, SpannerError, failed_precondition, not_found

_DAY_NS = 86_400 * 10**9


class RowStore:
    """The rows of one database."""

    def __init__(self) -> None:
        self.tables: dict[str, TableRows] = {}
        self.rules: Rules = {}
        self.commit_number = 0

    def follow_schema(
        self, catalogue: Catalogue, evaluation: Evaluation, *, at_us: int
    ) -> list[BackFill]:
        """Change the rows to a new schema; return the back-fills that remain to be committed.

        Raises `SpannerError`, and changes nothing, if rows forbid the change.
        """
        rules = build_rules(catalogue)
        plan = plan_rows(self.rules, rules, self.tables, evaluation, at_us=at_us)
        plan.carry_out(self.tables)
        self.rules = rules
        return plan.fills

    def due_rows(self, now_us: int) -> Iterator[tuple[str, list[bytes]]]:
        """Tables with rows that their row deletion policy selects, with these rows' keys in order.

        A row is due if its timestamp is at least as old as the policy's number of days; a row
        without a timestamp never is.
        """
        for name in sorted(self.rules):
            table = self.rules[name].table
            if table.row_deletion is None:
                continue
            column = table.column(table.row_deletion.column).name
            limit_ns = now_us * 1000 - table.row_deletion.older_than_days * _DAY_NS
            keys = [
                key
                for key, row in self.tables[name].scan(KeyRange(b"", None), None)
                if isinstance(moment := row.get(column), int) and moment <= limit_ns
            ]
            if keys:
                yield name, keys

    def new_writes(self) -> WriteSet:
        """An empty write set over the current rows."""
        return WriteSet(self.rules, self.tables)

    def store(self, writes: WriteSet, *, commit_us: int) -> None:
        """Make a write set the current state, as the next commit."""
        self.commit_number += 1
        for name, key, row in writes.final_rows():
            self.tables[name].write(
                key,
                row,
                commit_us=commit_us,
                commit_number=self.commit_number,
            )

    # -- reading

    def index(self, table: Table, name: str) -> HiddenIndex:
        """A secondary index of a table by name, or NOT_FOUND."""
        rules = self.rules.get(table.name.lower())
        for index in rules.indexes if rules is not None else ():
            if index.name == name.lower():
                return index
        raise not_found(f"No index '{name}' was found for table '{table.name}'.")

    def read(
        self,
        table: Table,
        keys: KeySet,
        *,
        transaction: Transaction | None,
        read_us: int | None,
        limit: int = 0,
        index: HiddenIndex | None = None,
    ) -> list[Row]:
        """Rows of a key set in key order without repetitions; with an index, its entries."""
        rows_by_key: dict[bytes, Row] = {}
        source = table if index is None else index.table
        for plain in keys.keys:
            if index is not None and index.key_length < len(source.key):
                where = prefix_range(source, plain, index.key_length)
                rows_by_key.update(
                    self.scan(source, where, transaction=transaction, read_us=read_us)
                )
                continue
            key = whole_key(source, plain)
            row = self._row(source, key, transaction=transaction, read_us=read_us)
            if row is not None:
                rows_by_key[key] = row
        spans = [None] if keys.everything else keys.spans
        for span in spans:
            where = key_range(source, span)
            rows_by_key.update(self.scan(source, where, transaction=transaction, read_us=read_us))
        is_ordered = not keys.keys and len(spans) == 1
        rows = (
            list(rows_by_key.values())
            if is_ordered
            else [rows_by_key[key] for key in sorted(rows_by_key)]
        )
        return rows[:limit] if limit > 0 else rows

    def _row(
        self, table: Table, key: bytes, *, transaction: Transaction | None, read_us: int | None
    ) -> Row | None:
        name = table.name.lower()
        rows = self._existing(table, read_us)
        if transaction is None or read_us is not None:
            return rows.read(key, read_us)
        writes = transaction.writes
        if writes is not None and writes.is_touched(name, key):
            return writes.row(name, key)
        transaction.note_key(name, key, commit_number=self.commit_number)
        return rows.current(key)

    def scan(
        self,
        table: Table,
        where: KeyRange,
        *,
        transaction: Transaction | None,
        read_us: int | None,
    ) -> list[tuple[bytes, Row]]:
        """Rows of a range of encoded keys, with their keys, in order."""
        rows = self._existing(table, read_us)
        if transaction is None or read_us is not None:
            return list(rows.scan(where, read_us))
        name = table.name.lower()
        transaction.note_range(name, where, commit_number=self.commit_number)
        if transaction.writes is not None:
            return transaction.writes.scan(name, where)
        return list(rows.scan(where, None))

    def _existing(self, table: Table, read_us: int | None) -> TableRows:
        rows = self.tables.get(table.name.lower())
        if rows is None or (read_us is not None and read_us < rows.created_us):
            raise not_found(f"Table not found: {table.name}")
        return rows

    def check_readable(
        self,
        table: Table,
        columns: Sequence[str],
        *,
        transaction: Transaction | None,
        read_us: int | None,
    ) -> None:
        """Reject a read in a transaction that is over, or of columns that cannot be read.

        Those are columns that await their commit and, at a past time, columns that were added
        later.
        """
        if read_us is not None:
            added_us = self._existing(table, read_us).added_us
            for column in columns if added_us else ():
                if added_us.get(column.lower(), 0) > read_us:
                    raise not_found(f"Column not found in table {table.name}: {column}")
        if transaction is None:
            return
        if transaction.state == "ABORTED":
            raise SpannerError(Code.ABORTED, "Transaction was aborted")
        if transaction.state != "ACTIVE":
            raise failed_precondition(
                "Cannot read or query using a transaction after it has been committed or "
                "rolledback.",
            )
        transaction.check_readable(table, columns)
