"""Functions as tables: their arguments, their results, and DuckDB's text for them.

One line per signature: `NAME(TYPE, ..) -> TYPE = text`, where `{0}` is the first argument.  ANY is
any type, ORDERED one with an order; `TYPE...` takes the remaining arguments, which the text places
as `{*}`.  PART is a date part such as DAY, and INTERVAL an INTERVAL, whose parts are `{0.count}`
and `{0.part}` in the text.  Without `= text` the function has the same name in DuckDB, in lower
case.  Lines that begin with `@` are aggregates: `{args}` are their arguments with DISTINCT and
ORDER BY.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from spanner_simulator.core.values import ValueType
from spanner_simulator.sql.sql_types import PG_NUMERIC, array_of
from spanner_simulator.sql.terms.bound import Bound
from spanner_simulator.sql.terms.coercion import common_type, implicit_cost

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spanner_simulator.core.values import Dialect


_LINE = re.compile(
    r"(?P<aggregate>@)?(?P<name>[A-Z_0-9]+|[-+*/%|]+)\((?P<arguments>.*?)\)\s*->\s*"
    r"(?P<result>[A-Z_0-9<>.]+)(?:\s*=\s*(?P<text>.*))?"
)
_TEMPLATES: Final = ("ANY", "ORDERED")
_UNORDERED: Final = frozenset(("ARRAY", "STRUCT", "JSON", "PROTO"))
TypePattern: TypeAlias = str


@dataclass(frozen=True, slots=True)
class Signature:
    """One line of a table."""

    name: str
    arguments: tuple[TypePattern, ...]
    rest: TypePattern | None
    result: TypePattern
    text: str
    is_aggregate: bool


@dataclass(frozen=True, slots=True)
class Match:
    """A matching signature, with the types to which each argument is converted."""

    signature: Signature
    types: tuple[ValueType, ...]
    result: ValueType


def read_signatures(table: str) -> Mapping[str, tuple[Signature, ...]]:
    """The signatures of a table by upper-case name."""
    signatures: dict[str, list[Signature]] = {}
    for line in filter(None, map(str.strip, table.splitlines())):
        read = _LINE.fullmatch(line)
        if read is None:
            raise ValueError(f"not a signature: {line}")
        arguments = [
            argument.strip() for argument in read["arguments"].split(",") if argument.strip()
        ]
        rest = arguments.pop().removesuffix("...") if "..." in read["arguments"] else None
        slots = ", ".join(f"{{{index}}}" for index in range(len(arguments)))
        text = read["text"] or f"{read['name'].lower()}({slots})"
        is_aggregate = read["aggregate"] is not None
        signature = Signature(
            read["name"], tuple(arguments), rest, read["result"], text, is_aggregate
        )
        signatures.setdefault(read["name"], []).append(signature)
    return {name: tuple(lines) for name, lines in signatures.items()}


def resolve(
    signatures: Sequence[Signature], arguments: Sequence[Bound], dialect: Dialect
) -> Match | None:
    """The signature that needs the fewest conversions; None if none matches."""
    best: tuple[int, Match] | None = None
    for signature in signatures:
        match = _match(signature, arguments, dialect)
        if match is not None and (best is None or match[0] < best[0]):
            best = match
    return None if best is None else best[1]


def _match(
    signature: Signature, arguments: Sequence[Bound], dialect: Dialect
) -> tuple[int, Match] | None:
    wanted = list(signature.arguments)
    if len(arguments) > len(wanted) and signature.rest is not None:
        wanted += [signature.rest] * (len(arguments) - len(wanted))
    if len(wanted) != len(arguments):
        return None
    chosen = _template_types(wanted, arguments, dialect)
    if chosen is None:
        return None
    cost = 0
    types: list[ValueType] = []
    for pattern, argument in zip(wanted, arguments, strict=True):
        target = _concrete(pattern, chosen)
        step = implicit_cost(argument, target, dialect)
        if step is None:
            return None
        cost += step
        types.append(target)
    return cost, Match(signature, tuple(types), _concrete(signature.result, chosen))


def _template_types(
    wanted: Sequence[TypePattern], arguments: Sequence[Bound], dialect: Dialect
) -> dict[str, ValueType] | None:
    """The types for ANY and ORDERED: the common type of the arguments in those places."""
    chosen: dict[str, ValueType] = {}
    for name in _TEMPLATES:
        bounds: list[Bound] = []
        for pattern, argument in zip(wanted, arguments, strict=True):
            kind = argument.value_type
            if kind is None or name not in pattern:
                continue
            if pattern.startswith("ARRAY<"):
                if kind.element is None:
                    return None
                bounds.append(Bound("", kind.element))
            elif name == "ORDERED" and kind.code in _UNORDERED:
                return None
            else:
                bounds.append(argument)
        common = common_type(bounds, dialect) if bounds else None
        if bounds and common is None:
            return None
        chosen[name] = common or ValueType("STRING" if dialect == "POSTGRESQL" else "INT64")
    return chosen


def _concrete(pattern: TypePattern, chosen: Mapping[str, ValueType]) -> ValueType:
    if pattern.startswith("ARRAY<"):
        return array_of(_concrete(pattern[6:-1], chosen))
    if pattern in chosen:
        return chosen[pattern]
    if pattern == "PG_NUMERIC":
        return PG_NUMERIC
    return ValueType(pattern)  # type: ignore[arg-type]  # a table names nothing but type codes
