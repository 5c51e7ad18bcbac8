"""Runs DML: computes the rows to write, writes them in the transaction, returns the RETURNING rows.

A statement has all of its effect or none.  Its writes are visible to the transaction's later
statements, and to others only after the commit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlglot import exp

from spanner_simulator.core.rows.key_sets import KeySet
from spanner_simulator.core.rows.mutations import COMMIT_TIMESTAMP, PENDING, Delete, Write
from spanner_simulator.core.rows.write_set import key_text
from spanner_simulator.core.values import encode
from spanner_simulator.errors import already_exists, failed_precondition, invalid_argument
from spanner_simulator.sql.binder.bound_query import BoundQuery
from spanner_simulator.sql.binder.dml_binder import BoundDml, bind_dml
from spanner_simulator.sql.binder.scans import Scan
from spanner_simulator.sql.binder.select_clauses import expand_items, output_columns
from spanner_simulator.sql.binder.tables import relation_of_scan
from spanner_simulator.sql.plans import Plan, ReadAt, check_privileges, make_plan
from spanner_simulator.sql.terms.bound import Scope, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from spanner_simulator.core.rows.mutations import Mutation, WriteKind
    from spanner_simulator.core.rows.transactions import Transaction
    from spanner_simulator.core.schema.catalogue import Catalogue
    from spanner_simulator.core.schema.schema_objects import Table
    from spanner_simulator.core.values import Row, Value, ValueType
    from spanner_simulator.sql.binder.binding import Binding
    from spanner_simulator.sql.duck import Duck
    from spanner_simulator.sql.parameter import Parameter
    from spanner_simulator.sql.syntax import Syntax


@dataclass(frozen=True, slots=True)
class DmlResult:
    """Number of rows written; columns and rows of THEN RETURN or RETURNING."""

    count: int
    columns: list[tuple[str, ValueType]] = field(default_factory=list)
    rows: Iterable[list[Value]] = ()


@dataclass(frozen=True, slots=True)
class DmlPlan:
    """A bound statement with its two queries: for the rows to write, and for the rows to return."""

    dml: BoundDml
    source: Plan
    returning: Plan | None

    @property
    def types(self) -> Mapping[str, ValueType]:
        """The types of the parameters."""
        return {**self.source.types, **(self.returning.types if self.returning else {})}

    @property
    def columns(self) -> list[tuple[str, ValueType]]:
        """The columns of THEN RETURN."""
        return self.returning.columns if self.returning is not None else []

    def holds(self, catalogue: Catalogue) -> bool:
        """Whether the catalogue still has the objects that this was bound to."""
        return self.source.holds(catalogue) and (
            self.returning is None or self.returning.holds(catalogue)
        )

    def run(
        self,
        duck: Callable[[], Duck],
        parameters: Mapping[str, Parameter],
        at: ReadAt,
        transaction: Transaction,
        check: Callable[[str, str], None] | None,
    ) -> DmlResult:
        """Write the rows, and read back those to return.  Raises `SpannerError`."""
        table = self.dml.table
        check_privileges(self.source.reads, check)
        for privilege in self.dml.needs:
            check_privileges((table.name,), check, privilege)
        if self.returning is not None:
            check_privileges(self.returning.reads | {table.name}, check)
        rows = self.source.run(duck, parameters, at)
        for name, drawn in self.dml.drawn.items():
            place = self.dml.columns.index(name)
            rows = [
                [*row[:place], at.database.next_identity(table, name), *row[place + 1 :]]
                if drawn[min(number, len(drawn) - 1)]
                else row
                for number, row in enumerate(rows)
            ]
        written = _Written(table, self.dml, self.source.columns, at, transaction)
        if self.returning is None:
            return DmlResult(written.apply(rows))
        with at.database.whole_statement(transaction):
            count, changed = written.apply_and_read(rows, self.returning.scans[0].used)
            returned = self.returning.run(duck, parameters, at, given=changed)
        return DmlResult(count, self.returning.columns, returned)


def make_dml_plan(binding: Binding, syntax: Syntax) -> DmlPlan:
    """Bind a DML statement and its returning clause."""
    dml = bind_dml(binding, syntax)
    source = make_plan(binding, dml.query)
    returning = None
    if syntax.returning:
        binding.scans = []
        binding.reads = set()
        returning = make_plan(binding, _returning(binding, dml.table, syntax))
    return DmlPlan(dml, source, returning)


def _returning(binding: Binding, table: Table, syntax: Syntax) -> BoundQuery:
    scan = Scan(1, table.name, table.type_of, table)
    binding.scans.append(scan)
    name = binding.fresh("r")
    alias = syntax.tree.this.alias if isinstance(syntax.tree.this, exp.Table) else ""
    relation = relation_of_scan(scan, alias or table.name.split(".")[-1], name)
    scope = Scope(relations=[relation], forbids_aggregates="RETURNING")
    items = expand_items(binding, scope, syntax.returning)
    output = output_columns(binding, items, syntax.returning[0])
    shown = ", ".join(f"{column.bound.sql} AS {quoted(column.key)}" for column in output)
    return BoundQuery(f"SELECT {shown} FROM scan1 AS {name}", output)  # noqa: S608  # own text


class _Written:
    """One run of a statement: its rows as mutations, and the rows before or after them."""

    def __init__(
        self,
        table: Table,
        dml: BoundDml,
        columns: Sequence[tuple[str, ValueType]],
        at: ReadAt,
        transaction: Transaction,
    ) -> None:
        self._transaction = transaction
        self._table = table
        self._dml = dml
        self._types = dict(columns) | {name: table.type_of[name] for name in table.key_names}
        self._at = at

    def apply(self, rows: Sequence[Sequence[Value]]) -> int:
        """Write the rows; return their number."""
        if self._dml.conflict == "error":
            return self._execute(self._dml.columns, rows)
        keyed = self._keyed(rows)
        return self._execute(*self._cells(keyed.values()))

    def apply_and_read(
        self, rows: Sequence[Sequence[Value]], used: Iterable[str]
    ) -> tuple[int, list[Row]]:
        """Write the rows; return their number and the rows, deleted ones as they were before."""
        keyed = self._keyed(rows)
        before = {key: self._row(key) for key in keyed}
        count = self._execute(*self._cells(keyed.values()))
        returned: list[Row] = []
        for key, old in before.items():
            row = old if self._dml.kind == "delete" else self._row(key)
            if row is not None:
                self._check_not_pending(row, used)
                returned.append(row)
        return count, returned

    def _row(self, key: bytes) -> Row | None:
        return self._at.database.row_to_write(self._transaction, self._table, key)

    def _check_not_pending(self, row: Row, names: Iterable[str]) -> None:
        for name in names:
            if row.get(name) == PENDING and self._table.type_of[name].code == "TIMESTAMP":
                raise failed_precondition(
                    f"The column {self._table.name}.{name} has a pending commit timestamp, which "
                    "THEN RETURN cannot return.",
                )

    def _keyed(self, rows: Sequence[Sequence[Value]]) -> dict[bytes, Row]:
        """Rows by their encoded keys; values of key columns are already computed.

        An INSERT OR IGNORE has already dropped existing rows.
        """
        keyed: dict[bytes, Row] = {}
        has_keys = set(self._table.key_names) <= set(self._dml.columns)
        for cells in rows:
            row: Row = dict(zip(self._dml.columns, cells, strict=True))
            if not has_keys:
                row = self._at.database.with_key(self._table, row, now_us=self._at.now_us)
            key = self._table.encoded_key(row)
            if self._dml.conflict == "ignore" and (key in keyed or self._row(key) is not None):
                continue
            if key in keyed and self._dml.kind == "insert":
                shown, name = key_text(self._table, row), self._table.name
                raise (
                    invalid_argument(f"Cannot affect a row second time for key: {shown}")
                    if self._dml.conflict == "update"
                    else already_exists(f"Row {shown} in table {name} already exists")
                )
            keyed[key] = row
        return keyed

    def _cells(self, rows: Collection[Row]) -> tuple[tuple[str, ...], list[list[Value]]]:
        """The columns that are written, and their values."""
        names = tuple(
            name
            for name in next(iter(rows), {})
            if name in self._dml.columns or self._table.column(name).generated is None
        )
        return names, [[row[name] for name in names] for row in rows]

    def _execute(self, columns: tuple[str, ...], rows: Sequence[Sequence[Value]]) -> int:
        if not rows:
            return 0
        types = [self._types[column] for column in columns]
        plain = [
            [
                COMMIT_TIMESTAMP
                if value == PENDING and kind.code == "TIMESTAMP"
                else encode(kind, value)
                for value, kind in zip(row, types, strict=True)
            ]
            for row in rows
        ]
        name, written = self._table.name, tuple(plain)
        mutation: Mutation
        if self._dml.kind == "delete":
            mutation = Delete(name, KeySet(written))
        else:
            kind: WriteKind = (
                "insert_or_update" if self._dml.conflict == "update" else self._dml.kind
            )
            mutation = Write(kind, name, columns, written)
        return self._at.database.execute(self._transaction, [mutation], now_us=self._at.now_us)
