"""Runs a parsed SELECT over tables and INFORMATION_SCHEMA, with NULLs as SQL has them.

Equality on leading key columns narrows what is read, and thereby what a read-write transaction is
held to. Anything else reads the whole table, which is what this simulator's queries can afford.
"""

from __future__ import annotations

import datetime as dt
import functools
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, TypeAlias

from tidegate.spanner_simulator.core import sql_syntax as syntax
from tidegate.spanner_simulator.core.key_encoding import successor
from tidegate.spanner_simulator.core.rows.storage import KeyRange
from tidegate.spanner_simulator.core.schema.information_schema import information_schema_table
from tidegate.spanner_simulator.core.values import Plain, Value, ValueType, decode
from tidegate.spanner_simulator.errors import Code, SpannerError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tidegate.spanner_simulator.core.database import Database
    from tidegate.spanner_simulator.core.rows.transactions import Transaction
    from tidegate.spanner_simulator.core.schema.schema_objects import Table

__all__ = ["run_select"]

_BOOL, _INT64, _STRING = ValueType("BOOL"), ValueType("INT64"), ValueType("STRING")
_Place: TypeAlias = "tuple[str, str]"
_Record: TypeAlias = "dict[_Place, Value]"


@dataclass(slots=True)
class _Untyped:
    """A parameter: its type follows from what it is compared with."""

    plain: Plain


@dataclass(frozen=True, slots=True)
class _Scope:
    """Columns in sight: (alias, lower-case name) to (name as written, type), in order."""

    columns: dict[_Place, tuple[str, ValueType]]
    parameters: Mapping[str, Plain]

    def place(self, column: syntax.Column) -> _Place:
        name = column.name.lower()
        if column.table is not None:
            place = (column.table.lower(), name)
            if place in self.columns:
                return place
        else:
            found = [place for place in self.columns if place[1] == name]
            if len(found) == 1:
                return found[0]
            if found:
                raise SpannerError(Code.INVALID_ARGUMENT, f"Column name {column.name} is ambiguous")
        raise SpannerError(Code.INVALID_ARGUMENT, f"Unrecognized name: {column.name}")

    def parameter(self, name: str) -> Plain:
        if name not in self.parameters:
            raise SpannerError(Code.INVALID_ARGUMENT, f"No parameter found for binding: {name}")
        return self.parameters[name]


@dataclass(frozen=True, slots=True)
class _Reader:
    """How user tables are read."""

    database: Database
    transaction: Transaction | None
    read_us: int | None
    check_select: Callable[[str], None]

    def rows(
        self, join: syntax.Join, where: syntax.Expression | None, parameters: Mapping[str, Plain]
    ) -> tuple[list[tuple[str, ValueType]], list[dict[str, Value]]]:
        """Columns and rows of one table of the FROM clause."""
        if join.schema.lower() == "information_schema":
            return information_schema_table(self.database.catalogue, join.table)
        if join.schema:
            raise SpannerError(
                Code.INVALID_ARGUMENT, f"Table not found: {join.schema}.{join.table}"
            )
        table = self.database.catalogue.tables.get(join.table.lower())
        if table is None:
            raise SpannerError(Code.INVALID_ARGUMENT, f"Table not found: {join.table}")
        self.check_select(table.name)
        narrowed = _narrow(table, join.alias, where, parameters)
        found = self.database.scan(
            table, narrowed, transaction=self.transaction, read_us=self.read_us
        )
        columns = [(column.name, column.value_type) for column in table.columns]
        return columns, [{name: row.get(name) for name, _ in columns} for _, row in found]


def run_select(
    database: Database,
    sql: str,
    parameters: Mapping[str, Plain],
    *,
    transaction: Transaction | None,
    read_us: int | None,
    check_select: Callable[[str], None],
) -> tuple[list[tuple[str, ValueType]], list[list[Value]]]:
    """Names and types of the result's columns, and its rows. Raises `SpannerError`."""
    select = syntax.parse_select(sql)
    reader = _Reader(database, transaction, read_us, check_select)
    scope = _Scope({}, parameters)
    records: list[_Record] = [{}]
    for index, join in enumerate(select.joins):
        where = select.where if len(select.joins) == 1 else None
        columns, rows = reader.rows(join, where, parameters)
        alias = join.alias.lower()
        scope.columns.update({(alias, name.lower()): (name, kind) for name, kind in columns})
        renamed = [{(alias, name.lower()): value for name, value in row.items()} for row in rows]
        records = renamed if index == 0 else _left_join(scope, records, renamed, join, columns)
    if select.where is not None:
        records = [one for one in records if _evaluate(scope, one, select.where) is True]
    items = _expand(scope, select.items)
    columns = [(item.name, _type_of(scope, item.expression)) for item in items]
    if any(_is_aggregate(item.expression) for item in items):
        if not all(_is_aggregate(item.expression) for item in items):
            raise SpannerError(
                Code.UNIMPLEMENTED, "The simulator does not support: columns beside aggregates"
            )
        return columns, [[_aggregate(scope, records, item.expression) for item in items]]
    records = _ordered(scope, records, select.order)
    if select.limit is not None:
        records = records[: _limit(scope, select.limit)]
    return columns, [
        [_typed(_evaluate(scope, one, item.expression), kind)
         for item, (_, kind) in zip(items, columns, strict=True)]
        for one in records
    ]  # fmt: skip


def _expand(scope: _Scope, items: Sequence[syntax.SelectItem]) -> list[syntax.SelectItem]:
    out: list[syntax.SelectItem] = []
    for item in items:
        if isinstance(item.expression, syntax.Star):
            out.extend(
                syntax.SelectItem(syntax.Column(alias, lowered), name)
                for (alias, lowered), (name, _) in scope.columns.items()
            )
        elif isinstance(item.expression, syntax.Column) and item.name == item.expression.name:
            name, _ = scope.columns[scope.place(item.expression)]
            out.append(syntax.SelectItem(item.expression, item.name or name))
        else:
            out.append(item)
    return out


def _left_join(
    scope: _Scope,
    left: list[_Record],
    right: list[_Record],
    join: syntax.Join,
    columns: Sequence[tuple[str, ValueType]],
) -> list[_Record]:
    nothing: _Record = {(join.alias.lower(), name.lower()): None for name, _ in columns}
    out: list[_Record] = []
    for one in left:
        pairs = [{**one, **other} for other in right]
        matches = [
            pair for pair in pairs if join.on is None or _evaluate(scope, pair, join.on) is True
        ]
        out.extend(matches or [{**one, **nothing}])
    return out


def _narrow(
    table: Table,
    alias: str,
    where: syntax.Expression | None,
    parameters: Mapping[str, Plain],
) -> KeyRange:
    """The range of keys that the equalities of a WHERE clause leave."""
    terms = where.terms if isinstance(where, syntax.Logic) and where.operator == "AND" else (where,)
    fixed: dict[str, Value] = {}
    for term in terms:
        if not (isinstance(term, syntax.Comparison) and term.operator == "="):
            continue
        for column, other in ((term.left, term.right), (term.right, term.left)):
            if not isinstance(column, syntax.Column) or column.name.lower() not in table.by_name:
                continue
            if column.table is not None and column.table.lower() != alias.lower():
                continue
            found = table.column(column.name)
            value = _fixed_value(other, found.value_type, parameters)
            if value is not None:
                fixed[found.name] = value
    values: list[Value] = []
    for name in table.key_names:
        if name not in fixed:
            break
        values.append(fixed[name])
    prefix = table.encoded_key_of(values)
    return KeyRange(prefix, successor(prefix))


def _fixed_value(
    expression: syntax.Expression, kind: ValueType, parameters: Mapping[str, Plain]
) -> Value:
    match expression:
        case syntax.Constant(value=value, value_type=literal) if literal is not None:
            return _coerce(value, literal, kind)
        case syntax.Parameter(name=name) if parameters.get(name) is not None:
            return decode(kind, parameters[name], where=f"@{name}")
        case _:
            return None


def _coerce(value: Value, have: ValueType, want: ValueType) -> Value:
    """A literal as the type that it is compared with."""
    if value is None or have.code == want.code:
        return value
    match have.code, want.code, value:
        case "INT64", "FLOAT64", int():
            return float(value)
        case "INT64" | "FLOAT64", "NUMERIC", int() | float():
            return Decimal(str(value))
        case "STRING", "TIMESTAMP" | "DATE" | "BYTES" | "NUMERIC", str():
            return decode(want, value, where="a literal")
        case _:
            raise SpannerError(
                Code.INVALID_ARGUMENT,
                f"No matching signature for comparison of {have.ddl()} and {want.ddl()}",
            )


def _infer(plain: Plain) -> tuple[Value, ValueType]:
    match plain:
        case bool():
            return plain, _BOOL
        case float() | int():
            return float(plain), ValueType("FLOAT64")
        case str() | None:
            return plain, _STRING
        case _:
            raise SpannerError(
                Code.INVALID_ARGUMENT, "An array parameter is only supported in UNNEST"
            )


def _type_of(scope: _Scope, expression: syntax.Expression) -> ValueType:
    match expression:
        case syntax.Column():
            return scope.columns[scope.place(expression)][1]
        case syntax.Constant(value_type=kind):
            return kind or _INT64
        case syntax.Parameter(name=name):
            return _infer(scope.parameter(name))[1]
        case syntax.Call(function="COUNT"):
            return _INT64
        case syntax.Call(function="IF", arguments=arguments):
            return _type_of(scope, arguments[1])
        case syntax.Call(arguments=arguments):
            return _type_of(scope, arguments[0])
        case _:
            return _BOOL


def _typed(value: Value | _Untyped, kind: ValueType) -> Value:
    return decode(kind, value.plain, where="a parameter") if isinstance(value, _Untyped) else value


def _evaluate(scope: _Scope, record: _Record, expression: syntax.Expression) -> Value | _Untyped:
    match expression:
        case syntax.Column():
            return record[scope.place(expression)]
        case syntax.Constant(value=value):
            return value
        case syntax.Parameter(name=name):
            return _Untyped(scope.parameter(name))
        case syntax.Comparison():
            return _compare(scope, record, expression)
        case syntax.Logic(operator=operator, terms=terms):
            results = [_evaluate(scope, record, term) for term in terms]
            decisive = operator == "OR"
            if any(result is decisive for result in results):
                return decisive
            return None if any(result is None for result in results) else not decisive
        case syntax.Not(term=term):
            result = _evaluate(scope, record, term)
            return None if result is None else result is not True
        case syntax.IsNull(term=term, negated=negated):
            value = _typed(_evaluate(scope, record, term), _type_of(scope, term))
            return (value is None) != negated
        case syntax.InList(term=term, items=items):
            tests = tuple(syntax.Comparison("=", term, item) for item in items)
            return _evaluate(scope, record, syntax.Logic("OR", tests))
        case syntax.InUnnest(term=term, array=array):
            plain = scope.parameter(array.name)
            kind = _type_of(scope, term)
            value = _typed(_evaluate(scope, record, term), kind)
            if not isinstance(plain, list) or value is None:
                return False if plain is None else None
            return value in [decode(kind, one, where=f"@{array.name}") for one in plain]
        case syntax.Call(function="IF", arguments=(test, then, otherwise)):
            chosen = then if _evaluate(scope, record, test) is True else otherwise
            return _evaluate(scope, record, chosen)
        case _:
            raise SpannerError(Code.INVALID_ARGUMENT, "An aggregate is not allowed here")


def _compare(scope: _Scope, record: _Record, comparison: syntax.Comparison) -> Value:
    left, right = (_evaluate(scope, record, one) for one in (comparison.left, comparison.right))
    left_type, right_type = (_type_of(scope, one) for one in (comparison.left, comparison.right))
    if isinstance(left, _Untyped):
        left_type = right_type
    elif isinstance(right, _Untyped):
        right_type = left_type
    first, second = _typed(left, left_type), _typed(right, right_type)
    if isinstance(comparison.left, syntax.Constant):
        first = _coerce(first, left_type, right_type)
    elif isinstance(comparison.right, syntax.Constant):
        second = _coerce(second, right_type, left_type)
    if first is None or second is None:
        return None
    order = _order(first, second)
    match comparison.operator:
        case "=":
            return order == 0
        case "!=":
            return order != 0
        case "<":
            return order < 0
        case "<=":
            return order <= 0
        case ">":
            return order > 0
        case ">=":
            return order >= 0


def _order(first: Value, second: Value) -> int:
    """-1, 0 or 1; NULL sorts first, as in GoogleSQL."""
    match first, second:
        case None, None:
            return 0
        case None, _:
            return -1
        case _, None:
            return 1
        case (
            (int() | float() | Decimal(), int() | float() | Decimal())
            | (str(), str())
            | (bytes(), bytes())
            | (dt.date(), dt.date())
        ):
            return (first > second) - (first < second)  # type: ignore[operator]  # same family
        case _:
            raise SpannerError(Code.INVALID_ARGUMENT, "These values cannot be compared")


def _ordered(
    scope: _Scope, records: list[_Record], order: Sequence[syntax.OrderKey]
) -> list[_Record]:
    for key in reversed(order):
        kind = _type_of(scope, key.expression)

        def value(
            record: _Record, expression: syntax.Expression = key.expression, kind: ValueType = kind
        ) -> object:
            return _Sorted(_typed(_evaluate(scope, record, expression), kind))

        records = sorted(records, key=value, reverse=key.descending)  # type: ignore[arg-type]  # _Sorted
    return records


@functools.total_ordering
class _Sorted:
    def __init__(self, value: Value) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Sorted) and _order(self.value, other.value) == 0

    def __lt__(self, other: _Sorted) -> bool:
        return _order(self.value, other.value) < 0

    __hash__ = None  # type: ignore[assignment]  # only ever sorted


def _limit(scope: _Scope, expression: syntax.Expression) -> int:
    value = _typed(_evaluate(scope, {}, expression), _INT64)
    if not isinstance(value, int) or value < 0:
        raise SpannerError(Code.INVALID_ARGUMENT, "LIMIT expects a non-negative integer")
    return value


def _is_aggregate(expression: syntax.Expression) -> bool:
    return isinstance(expression, syntax.Call) and expression.function in syntax.AGGREGATES


def _aggregate(scope: _Scope, records: list[_Record], expression: syntax.Expression) -> Value:
    if not isinstance(expression, syntax.Call):
        raise TypeError("only aggregates come here")
    argument = expression.arguments[0]
    if isinstance(argument, syntax.Star):
        return len(records)
    kind = _type_of(scope, argument)
    values = [_typed(_evaluate(scope, one, argument), kind) for one in records]
    present = [value for value in values if value is not None]
    match expression.function:
        case "COUNT":
            return len(present)
        case "SUM":
            return _sum(present)
        case "MIN":
            return min(present, key=_Sorted, default=None)
        case _:
            return max(present, key=_Sorted, default=None)


def _sum(values: Sequence[Value]) -> Value:
    total: int | float | Decimal | None = None
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            raise SpannerError(Code.INVALID_ARGUMENT, "SUM needs a numeric column")
        total = value if total is None else total + value  # type: ignore[operator]  # one type
    if isinstance(total, int) and not -(2**63) <= total < 2**63:
        raise SpannerError(Code.OUT_OF_RANGE, "Integer overflow in SUM")
    return total
