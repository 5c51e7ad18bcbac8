"""A bound query ready to run: DuckDB's text, its scans, the types of its parameters.

A plan is valid as long as the catalogue has the same objects that it was bound to.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from spanner_simulator.core.values import Plain, Value, ValueType, decode
from spanner_simulator.errors import SpannerError, invalid_argument
from spanner_simulator.sql.binder.binding import NOW, Binding
from spanner_simulator.sql.binder.scans import Scan, key_plan
from spanner_simulator.sql.sql_types import carrier, from_duck, to_duck
from spanner_simulator.sql.terms.bound import Constant, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from spanner_simulator.core.database import Database
    from spanner_simulator.core.rows.transactions import Transaction
    from spanner_simulator.core.schema.catalogue import Catalogue
    from spanner_simulator.sql.binder.bound_query import BoundQuery, Lookup
    from spanner_simulator.sql.duck import Duck, TableRows
    from spanner_simulator.sql.parameter import Parameter


_NAME: Final = re.compile(r"""'(?:''|[^'])*'|"(?:""|[^"])*"|\$(\w+)""")


@dataclass(frozen=True, slots=True)
class ReadAt:
    """Where and when a statement reads: inside a transaction, or at a timestamp."""

    database: Database
    transaction: Transaction | None
    read_us: int | None
    now_us: int


@dataclass(frozen=True, slots=True)
class Plan:
    """How to run one query; `reads` are the tables for which SELECT is needed.

    `names` are the parameters of the text: DuckDB requires exactly these.
    """

    sql: str
    names: frozenset[str]
    columns: list[tuple[str, ValueType]]
    scans: tuple[Scan, ...]
    types: Mapping[str, ValueType]
    dependencies: tuple[tuple[str, str, object], ...]
    reads: frozenset[str]
    lookup: Lookup | None

    def holds(self, catalogue: Catalogue) -> bool:
        """Whether the catalogue still has the objects that this was bound to."""
        return all(
            getattr(catalogue, kind).get(key) is version for kind, key, version in self.dependencies
        )

    def run(
        self,
        duck: Callable[[], Duck],
        parameters: Mapping[str, Parameter],
        at: ReadAt,
        *,
        given: Sequence[Mapping[str, Value]] | None = None,
    ) -> list[list[Value]]:
        """Read the necessary rows and compute the result.  Raises `SpannerError`.

        `given` replaces the rows of the first scan, which is then not read.
        """
        values = {
            name: decode_parameter(name, parameters[name].plain, kind)
            for name, kind in self.types.items()
        }
        fetched: dict[str, TableRows] = {}
        if self.lookup is not None and self.lookup.scan is None:
            return [_picked(cells, {}, values) for cells in self.lookup.cells]
        for scan in self.scans:
            is_given = given is not None and scan.number == 1
            rows, is_exact = (given or (), False) if is_given else _fetch(scan, values, at)
            if self.lookup is not None and is_exact:
                cells = self.lookup.cells[0]
                return [_picked(cells, row, values) for row in rows]
            fetched[f"raw{scan.number}"] = ({name: scan.types[name] for name in scan.used}, rows)
        bound: dict[str, Any] = {
            f"p_{name}": to_duck(kind, values[name])
            for name, kind in self.types.items()
            if f"p_{name}" in self.names
        }
        if NOW in self.names:
            bound[NOW] = at.now_us * 1000
        return _converted(self.columns, duck().run(self.sql, bound, fetched))


def _picked(
    cells: Sequence[str | Constant], row: Mapping[str, Value], values: Mapping[str, Value]
) -> list[Value]:
    return [
        row.get(cell)
        if isinstance(cell, str)
        else cell.value
        if cell.parameter is None
        else values[cell.parameter]
        for cell in cells
    ]


def _converted(
    columns: Sequence[tuple[str, ValueType]], rows: Iterable[Sequence[Any]]
) -> list[list[Value]]:
    converters = [from_duck(kind) for _, kind in columns]
    if not any(converters):
        return [list(row) for row in rows]
    return [
        [
            value if convert is None or value is None else convert(value)
            for convert, value in zip(converters, row, strict=True)
        ]
        for row in rows
    ]


def make_plan(binding: Binding, query: BoundQuery) -> Plan:
    """The plan for a bound query."""
    types = {name: kind for name, kind in binding.types.items() if name in binding.used_parameters}
    for name in sorted(binding.used_parameters - types.keys()):
        untyped = binding.settled(binding.parameter(name))
        if untyped.value_type is not None:
            types[name] = untyped.value_type
    scans = ", ".join(scan_sql(scan) for scan in binding.scans)
    sql = f"WITH {scans} {query.sql}" if scans else query.sql
    return Plan(
        sql,
        names_in(sql),
        [(column.name, column.value_type) for column in query.columns],
        tuple(binding.scans),
        types,
        tuple(binding.dependencies),
        frozenset(binding.reads),
        query.lookup,
    )


def names_in(sql: str) -> frozenset[str]:
    """The parameters in a text for DuckDB, except those inside strings."""
    return frozenset(match[1] for match in _NAME.finditer(sql) if match[1])


def scan_sql(scan: Scan) -> str:
    """One entry of the WITH clause: the columns that are used, in their carriers."""
    columns = [
        f"CAST({quoted(name)} AS {carrier(kind)}) AS {quoted(name)}"
        if "TIMESTAMP" in (kind.code, kind.element.code if kind.element else "")
        else quoted(name)
        for name, kind in ((name, scan.types[name]) for name in scan.used)
    ]
    shown = ", ".join(columns) or '"_"'
    return f"scan{scan.number} AS (SELECT {shown} FROM raw{scan.number})"  # noqa: S608  # own text


def _fetch(
    scan: Scan, values: Mapping[str, Value], at: ReadAt
) -> tuple[Sequence[Mapping[str, Value]], bool]:
    if scan.table is None:
        return list(scan.rows() if scan.rows is not None else ()), not scan.restrictions

    def value_of(constant: Constant, kind: ValueType) -> list[Value]:
        value = constant.value if constant.parameter is None else values[constant.parameter]
        if constant.is_list:
            return list(value) if isinstance(value, tuple) else []
        return [_read_as(value, kind)]

    plan = key_plan(scan, scan.table, value_of)
    rows: list[Mapping[str, Value]] = []
    for where in plan.ranges:
        entries = at.database.scan(
            scan.table,
            where,
            transaction=at.transaction,
            read_us=at.read_us,
            columns=list(scan.used),
        )
        rows.extend(row for _, row in entries)
    return rows, plan.is_exact


def _read_as(value: Value, kind: ValueType) -> Value:
    """A constant as its column's type, which differs only for integers as floats."""
    if kind.code in ("FLOAT64", "FLOAT32") and isinstance(value, int):
        return float(value)
    return value


def decode_parameter(name: str, plain: Plain, kind: ValueType) -> Value:
    """A parameter's value; INVALID_ARGUMENT if it does not have its type."""
    try:
        return decode(kind, plain, where=name)
    except SpannerError as error:
        raise invalid_argument(
            f"Invalid value for bind parameter {name}: {error.message}"
        ) from None


def check_privileges(
    reads: Iterable[str], check: Callable[[str, str], None] | None, privilege: str = "SELECT"
) -> None:
    """Call the caller's check for each table."""
    if check is not None:
        for table in sorted(reads):
            check(table, privilege)
