"""Runs DML: computes the rows to write, writes them in the transaction, returns what was asked.

A statement has all of its effect or none. What it wrote is visible to the transaction's later
statements and to nobody else until the commit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidegate.spanner_simulator.core.rows.mutations import (
    COMMIT_TIMESTAMP,
    PENDING,
    Delete,
    KeySet,
    Write,
)
from tidegate.spanner_simulator.core.rows.write_set import key_text
from tidegate.spanner_simulator.core.values import encode
from tidegate.spanner_simulator.errors import Code, SpannerError
from tidegate.spanner_simulator.sql.binder.bound import (
    Bound,
    ColumnRef,
    Relation,
    RelationColumn,
    Scope,
    quoted,
)
from tidegate.spanner_simulator.sql.binder.bound_query import BoundQuery
from tidegate.spanner_simulator.sql.binder.dml_binder import BoundDml, bind_dml
from tidegate.spanner_simulator.sql.binder.scans import Scan
from tidegate.spanner_simulator.sql.binder.select_list import expand_items, output_columns
from tidegate.spanner_simulator.sql.binder.tables import check_hints
from tidegate.spanner_simulator.sql.plans import Plan, ReadAt, check_privileges, make_plan
from tidegate.spanner_simulator.sql.sql_types import STRING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tidegate.spanner_simulator.core.database import Database
    from tidegate.spanner_simulator.core.rows.mutations import Mutation, WriteKind
    from tidegate.spanner_simulator.core.rows.transactions import Transaction
    from tidegate.spanner_simulator.core.schema.catalogue import Catalogue
    from tidegate.spanner_simulator.core.schema.schema_objects import Table
    from tidegate.spanner_simulator.core.values import Plain, Value, ValueType
    from tidegate.spanner_simulator.sql.binder.binding import Binding, Parameter
    from tidegate.spanner_simulator.sql.duck import Duck
    from tidegate.spanner_simulator.sql.syntax import Syntax

__all__ = ["DmlPlan", "DmlResult", "make_dml_plan"]

_ACTION = "action taken"  # no column's name has a blank


@dataclass(frozen=True, slots=True)
class DmlResult:
    """How many rows were written; columns and rows of THEN RETURN or RETURNING."""

    count: int
    columns: list[tuple[str, ValueType]] = field(default_factory=list)
    rows: Iterable[list[Value]] = ()


@dataclass(frozen=True, slots=True)
class DmlPlan:
    """A bound statement with its two queries: what to write, and what to return."""

    dml: BoundDml
    source: Plan
    returning: Plan | None

    @property
    def types(self) -> Mapping[str, ValueType]:
        """The types of the parameters."""
        return {**self.source.types, **(self.returning.types if self.returning else {})}

    @property
    def columns(self) -> list[tuple[str, ValueType]]:
        """What THEN RETURN gives."""
        return self.returning.columns if self.returning is not None else []

    def holds(self, catalogue: Catalogue) -> bool:
        """Whether the catalogue still has what this was bound to."""
        return self.source.holds(catalogue)

    def run(
        self,
        duck: Callable[[], Duck],
        parameters: Mapping[str, Parameter],
        at: ReadAt,
        check: Callable[[str, str], None] | None,
    ) -> DmlResult:
        """Write, and read back what is to be returned. Raises `SpannerError`."""
        table = self.dml.table
        check_privileges(self.source.reads, check)
        for privilege in self.dml.needs:
            check_privileges((table.name,), check, privilege)
        rows = self.source.run(duck, parameters, at)
        written = _Written(table, self.dml, self.source.columns, at)
        if self.returning is None:
            return DmlResult(written.apply(rows))
        check_privileges((table.name,), check)
        count, changed = written.apply_and_read(rows, self.returning.scans[0].used)
        returned = self.returning.run(duck, parameters, at, given=changed)
        return DmlResult(count, self.returning.columns, returned)


def make_dml_plan(binding: Binding, syntax: Syntax) -> DmlPlan:
    """Bind a DML statement and its returning clause."""
    check_hints(binding)
    dml = bind_dml(binding, syntax)
    source = make_plan(binding, dml.query)
    returning = None
    if syntax.returning:
        binding.scans = []
        binding.reads = set()
        returning = make_plan(binding, _returning(binding, dml.table, syntax))
    return DmlPlan(dml, source, returning)


def _returning(binding: Binding, table: Table, syntax: Syntax) -> BoundQuery:
    scan = Scan(1, table.name, {**table.type_of, _ACTION: STRING}, table)
    binding.scans.append(scan)
    name = binding.fresh("r")
    columns = [
        RelationColumn(
            column.name,
            Bound(f"{name}.{quoted(column.name)}", column.value_type,
                  column=ColumnRef(1, column.name)),
        )
        for column in table.columns
    ]  # fmt: skip
    alias = syntax.tree.this.alias if hasattr(syntax.tree.this, "alias") else ""
    relation = Relation(alias or table.name.split(".")[-1], columns)
    scope = Scope(relations=[relation], forbids_aggregates="RETURNING")
    items = expand_items(binding, scope, syntax.returning)
    if syntax.action_name is not None:
        action = Bound(f"{name}.{quoted(_ACTION)}", STRING, column=ColumnRef(1, _ACTION))
        binding.mark(action)
        items.append((syntax.action_name, action, syntax.returning[0]))
    found = output_columns(binding, items, syntax.returning[0])
    shown = ", ".join(f"{one.bound.sql} AS {quoted(one.key)}" for one in found)
    return BoundQuery(f"SELECT {shown} FROM scan1 AS {name}", found)  # noqa: S608  # own text


class _Written:
    """One run of a statement: its rows as mutations, and the rows before or after them."""

    def __init__(
        self,
        table: Table,
        dml: BoundDml,
        columns: Sequence[tuple[str, ValueType]],
        at: ReadAt,
    ) -> None:
        self._table = table
        self._dml = dml
        self._types = [kind for _, kind in columns]
        self._at = at

    @property
    def _database(self) -> Database:
        return self._at.database

    @property
    def _transaction(self) -> Transaction:
        if self._at.transaction is None:
            raise SpannerError(
                Code.INVALID_ARGUMENT,
                "DML statements can only be performed in a read-write or partitioned-dml "
                "transaction.",
            )
        return self._at.transaction

    def apply(self, rows: Sequence[Sequence[Value]]) -> int:
        """Write the rows; how many."""
        self._check_distinct(rows)
        plain = self._kept([self._plain(row) for row in rows])
        if not plain:
            return 0
        mutation = self._mutation(plain)
        return self._database.execute(self._transaction, [mutation], now_us=self._at.now_us)

    def apply_and_read(
        self, rows: Sequence[Sequence[Value]], used: Iterable[str]
    ) -> tuple[int, list[Mapping[str, Value]]]:
        """Write the rows; how many, and each with its action, as it was when it is deleted."""
        names = [name for name in used if name != _ACTION]
        self._check_not_pending(rows, names)
        self._check_distinct(rows)
        plain = self._kept([self._plain(row) for row in rows])
        keys = [self._key(row) for row in plain]
        if self._dml.kind == "delete":
            before = self._rows(keys, names)
            count = self.apply(rows)
            return count, [{**row, _ACTION: "DELETE"} for row in before.values()]
        existing = self._rows(keys, []) if self._dml.conflict == "update" else {}
        mutation = self._mutation(plain)
        count = (
            self._database.execute(self._transaction, [mutation], now_us=self._at.now_us)
            if plain
            else 0
        )
        after = self._rows(keys, names)
        usual = "UPDATE" if self._dml.kind == "update" else "INSERT"
        return count, [
            {**row, _ACTION: "UPDATE" if key in existing else usual} for key, row in after.items()
        ]

    def _check_not_pending(self, rows: Sequence[Sequence[Value]], names: Iterable[str]) -> None:
        wanted = set(names)
        for index, name in enumerate(self._dml.columns):
            if name in wanted and any(row[index] == PENDING for row in rows):
                raise SpannerError(
                    Code.FAILED_PRECONDITION,
                    f"The column {self._table.name}.{name} has a pending commit timestamp, which "
                    "THEN RETURN cannot return.",
                )

    def _check_distinct(self, rows: Sequence[Sequence[Value]]) -> None:
        """An insert that may update has one say on each row."""
        if self._dml.conflict != "update":
            return
        seen: set[str] = set()
        for row in rows:
            key = key_text(self._table, dict(zip(self._dml.columns, row, strict=True)))
            if key in seen:
                raise SpannerError(
                    Code.INVALID_ARGUMENT, f"Cannot affect a row second time for key: {key}"
                )
            seen.add(key)

    def _plain(self, row: Sequence[Value]) -> list[Plain]:
        return [
            COMMIT_TIMESTAMP
            if value == PENDING and kind.code == "TIMESTAMP"
            else encode(kind, value)
            for value, kind in zip(row, self._types, strict=True)
        ]

    def _key(self, row: Sequence[Plain]) -> list[Plain]:
        by_name = dict(zip(self._dml.columns, row, strict=True))
        return [by_name.get(name) for name in self._table.key_names]

    def _rows(
        self, keys: Sequence[list[Plain]], columns: Sequence[str]
    ) -> dict[bytes, Mapping[str, Value]]:
        """Rows that exist, by encoded key, in the order of the statement."""
        found: dict[bytes, Mapping[str, Value]] = {}
        for key in keys:
            for row in self._database.read(
                self._table,
                KeySet((key,)),
                transaction=self._transaction,
                read_us=None,
                columns=columns,
            ):
                found[self._table.encoded_key(dict(row))] = row
        return found

    def _kept(self, rows: list[list[Plain]]) -> list[list[Plain]]:
        """Without the rows that INSERT OR IGNORE finds already there."""
        if self._dml.kind != "insert" or self._dml.conflict != "ignore":
            return rows
        first: dict[Any, list[Plain]] = {}
        for row in rows:
            key = self._key(row)
            if not self._rows([key], []):
                first.setdefault(repr(key), row)
        return list(first.values())

    def _mutation(self, rows: list[list[Plain]]) -> Mutation:
        name = self._table.name
        match self._dml.kind:
            case "delete":
                return Delete(name, KeySet(tuple(rows)))
            case "update":
                return Write("update", name, self._dml.columns, tuple(rows))
            case _:
                kind: WriteKind = "insert_or_update" if self._dml.conflict == "update" else "insert"
                return Write(kind, name, self._dml.columns, tuple(rows))
