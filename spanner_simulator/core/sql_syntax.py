"""The subset of SELECT that the simulator understands, as a tree.

`SELECT list FROM table [alias] [LEFT JOIN table [alias] ON ..]* [WHERE ..] [ORDER BY ..] [LIMIT n]`
with comparisons, AND, OR, NOT, IN, IN UNNEST, IS NULL, IF and the aggregates COUNT, SUM, MIN, MAX.
Everything else is refused (UNIMPLEMENTED or INVALID_ARGUMENT), never half understood.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from tidegate.spanner_simulator.core.lexer import Word, Words
from tidegate.spanner_simulator.core.values import Value, ValueType
from tidegate.spanner_simulator.errors import Code, SpannerError

__all__ = [
    "Call",
    "Column",
    "Comparison",
    "Constant",
    "Expression",
    "InList",
    "InUnnest",
    "IsNull",
    "Join",
    "Logic",
    "Not",
    "OrderKey",
    "Parameter",
    "Select",
    "SelectItem",
    "Star",
    "parse_select",
]

ComparisonOperator = Literal["=", "!=", "<", "<=", ">", ">="]
_OPERATORS: dict[str, ComparisonOperator] = {
    "=": "=", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">=",
}  # fmt: skip
_ENDS = frozenset(
    ("FROM", "WHERE", "ORDER", "LIMIT", "LEFT", "JOIN", "ON", "AND", "OR", "GROUP", "HAVING")
)
_FUNCTIONS = frozenset(("COUNT", "SUM", "MIN", "MAX", "IF"))
AGGREGATES = frozenset(("COUNT", "SUM", "MIN", "MAX"))


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal; the type is None for NULL."""

    value: Value
    value_type: ValueType | None


@dataclass(frozen=True, slots=True)
class Parameter:
    """@name, in lower case."""

    name: str


@dataclass(frozen=True, slots=True)
class Column:
    """A column, maybe of a named table."""

    table: str | None
    name: str


@dataclass(frozen=True, slots=True)
class Star:
    """`*`, alone or in COUNT(*)."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """left operator right."""

    operator: ComparisonOperator
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Logic:
    """AND or OR over several terms."""

    operator: Literal["AND", "OR"]
    terms: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """NOT."""

    term: Expression


@dataclass(frozen=True, slots=True)
class IsNull:
    """IS [NOT] NULL."""

    term: Expression
    negated: bool


@dataclass(frozen=True, slots=True)
class InList:
    """IN (..)."""

    term: Expression
    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class InUnnest:
    """IN UNNEST(@array)."""

    term: Expression
    array: Parameter


@dataclass(frozen=True, slots=True)
class Call:
    """A function or an aggregate."""

    function: str
    arguments: tuple[Expression, ...]


Expression: TypeAlias = (
    "Constant | Parameter | Column | Star | Comparison | Logic | Not | IsNull | InList | InUnnest"
    " | Call"
)


@dataclass(frozen=True, slots=True)
class SelectItem:
    """One output column; the name is empty for an expression without alias."""

    expression: Expression
    name: str


@dataclass(frozen=True, slots=True)
class Join:
    """A table of the FROM clause. `on` None is the first table; later ones are left joins."""

    schema: str
    table: str
    alias: str
    on: Expression | None


@dataclass(frozen=True, slots=True)
class OrderKey:
    """One ORDER BY entry."""

    expression: Expression
    descending: bool


@dataclass(frozen=True, slots=True)
class Select:
    """A whole statement; no joins when it has no FROM."""

    items: tuple[SelectItem, ...]
    joins: tuple[Join, ...]
    where: Expression | None
    order: tuple[OrderKey, ...]
    limit: Expression | None


def parse_select(sql: str) -> Select:
    """Parse one SELECT statement. Raises `SpannerError`."""
    words = Words(sql)
    if words.peek().is_symbol("@"):
        raise _unsupported("statement hints")
    if not words.accept("SELECT"):
        raise _unsupported(f"SQL statements other than SELECT: {sql.strip()[:60]}")
    items = [_item(words)]
    while words.accept_symbol(","):
        items.append(_item(words))
    joins: list[Join] = []
    if words.accept("FROM"):
        joins.append(_table(words, is_first=True))
        while words.accept("LEFT", "OUTER", "JOIN") or words.accept("LEFT", "JOIN"):
            joins.append(_table(words, is_first=False))
    where = _expression(words) if words.accept("WHERE") else None
    order: list[OrderKey] = []
    if words.accept("ORDER", "BY"):
        order.append(_order_key(words))
        while words.accept_symbol(","):
            order.append(_order_key(words))
    limit = _primary(words) if words.accept("LIMIT") else None
    if not words.at_end():
        raise _unsupported(f'"{words.peek().text}" in {sql.strip()[:80]}')
    return Select(tuple(items), tuple(joins), where, tuple(order), limit)


def _unsupported(what: str) -> SpannerError:
    return SpannerError(Code.UNIMPLEMENTED, f"The simulator does not support: {what}")


def _item(words: Words) -> SelectItem:
    if words.accept_symbol("*"):
        return SelectItem(Star(), "*")
    expression = _expression(words)
    name = expression.name if isinstance(expression, Column) else ""
    if words.accept("AS") or _is_alias(words.peek()):
        name = words.name("alias")
    return SelectItem(expression, name)


def _is_alias(word: Word) -> bool:
    return word.kind == "quoted_name" or (word.kind == "name" and word.text.upper() not in _ENDS)


def _table(words: Words, *, is_first: bool) -> Join:
    schema, table = "", words.name("table name")
    if words.accept_symbol("."):
        schema, table = table, words.name("table name")
    if words.peek().is_symbol("@"):
        raise _unsupported("table hints")
    alias = table
    if words.accept("AS") or _is_alias(words.peek()):
        alias = words.name("alias")
    on = None
    if not is_first:
        words.expect("ON")
        on = _expression(words)
    return Join(schema, table, alias, on)


def _order_key(words: Words) -> OrderKey:
    expression = _expression(words)
    descending = words.accept("DESC")
    if not descending:
        words.accept("ASC")
    return OrderKey(expression, descending)


def _expression(words: Words) -> Expression:
    terms = [_conjunction(words)]
    while words.accept("OR"):
        terms.append(_conjunction(words))
    return terms[0] if len(terms) == 1 else Logic("OR", tuple(terms))


def _conjunction(words: Words) -> Expression:
    terms = [_predicate(words)]
    while words.accept("AND"):
        terms.append(_predicate(words))
    return terms[0] if len(terms) == 1 else Logic("AND", tuple(terms))


def _predicate(words: Words) -> Expression:
    if words.accept("NOT"):
        return Not(_predicate(words))
    left = _primary(words)
    if words.accept("IS", "NOT", "NULL"):
        return IsNull(left, negated=True)
    if words.accept("IS", "NULL"):
        return IsNull(left, negated=False)
    if words.accept("NOT", "IN"):
        return Not(_in(words, left))
    if words.accept("IN"):
        return _in(words, left)
    if words.accept("BETWEEN"):
        low = _primary(words)
        words.expect("AND")
        return Logic("AND", (Comparison(">=", left, low), Comparison("<=", left, _primary(words))))
    operator = _OPERATORS.get(words.peek().text) if words.peek().kind == "symbol" else None
    if operator is None:
        return left
    words.take()
    return Comparison(operator, left, _primary(words))


def _in(words: Words, left: Expression) -> Expression:
    if words.accept("UNNEST"):
        words.expect_symbol("(")
        word = words.take()
        if word.kind != "parameter":
            raise _unsupported("UNNEST of anything but a parameter")
        words.expect_symbol(")")
        return InUnnest(left, Parameter(word.text.lower()))
    words.expect_symbol("(")
    items = [_primary(words)]
    while words.accept_symbol(","):
        items.append(_primary(words))
    words.expect_symbol(")")
    return InList(left, tuple(items))


def _primary(words: Words) -> Expression:
    if words.accept_symbol("("):
        inner = _expression(words)
        words.expect_symbol(")")
        return inner
    if words.accept_symbol("-"):
        return _number(words, sign=-1)
    word = words.peek()
    match word.kind:
        case "number":
            return _number(words, sign=1)
        case "text":
            return Constant(words.take().text, ValueType("STRING"))
        case "parameter":
            return Parameter(words.take().text.lower())
        case "name" | "quoted_name":
            return _named(words)
        case _:
            return words.refuse("Expected an expression")


def _number(words: Words, *, sign: int) -> Constant:
    word = words.take()
    if word.kind != "number":
        words.refuse("Expected a number")
    if word.text.isdigit():
        return Constant(sign * int(word.text), ValueType("INT64"))
    return Constant(sign * float(word.text), ValueType("FLOAT64"))


def _named(words: Words) -> Expression:
    for keyword, value in (("TRUE", True), ("FALSE", False)):
        if words.accept(keyword):
            return Constant(value, ValueType("BOOL"))
    if words.accept("NULL"):
        return Constant(None, None)
    if words.peek().is_keyword("TIMESTAMP") and words.peek(1).kind == "text":
        words.take()
        return Constant(words.take().text, ValueType("STRING"))
    name = words.name()
    if words.accept_symbol("("):
        return _call(words, name.upper())
    if words.accept_symbol("."):
        return Column(name, words.name("column name"))
    return Column(None, name)


def _call(words: Words, function: str) -> Call:
    if function not in _FUNCTIONS:
        raise _unsupported(f"function {function}")
    arguments: list[Expression] = []
    if function == "COUNT" and words.accept_symbol("*"):
        arguments.append(Star())
    else:
        arguments.append(_expression(words))
        while words.accept_symbol(","):
            arguments.append(_expression(words))
    words.expect_symbol(")")
    if len(arguments) != (3 if function == "IF" else 1):
        words.refuse(f"Wrong number of arguments for {function}; expected another number")
    return Call(function, tuple(arguments))
