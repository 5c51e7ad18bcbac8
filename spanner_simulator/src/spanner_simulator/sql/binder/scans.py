"""The rows that a statement reads: a scan per table of its FROM clauses, as narrow as possible.

Conditions on the first key columns become key ranges, so that a read-write transaction conflicts
only on those rows.  A range may contain more rows than the statement needs, never fewer.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spanner_simulator.core.key_encoding import successor
from spanner_simulator.core.rows.storage import KeyRange

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from spanner_simulator.core.schema.schema_objects import Table
    from spanner_simulator.core.values import Value, ValueType
    from spanner_simulator.sql.terms.bound import Comparison, Constant, Restriction


# More combinations of listed values are read as one range.
_RANGES_MAX = 1000


@dataclass(slots=True)
class Scan:
    """One table in a FROM clause; `used` are the columns that the statement uses.

    `table` None: a table of INFORMATION_SCHEMA, whose rows `rows` returns.
    """

    number: int
    name: str
    types: Mapping[str, ValueType]
    table: Table | None = None
    rows: Callable[[], Sequence[Mapping[str, Value]]] | None = None
    used: dict[str, None] = field(default_factory=dict)
    restrictions: list[Restriction] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class KeyPlan:
    """Disjoint key ranges; `is_exact` means that they contain exactly the restricted rows."""

    ranges: tuple[KeyRange, ...]
    is_exact: bool


def key_plan(
    scan: Scan, table: Table, value_of: Callable[[Constant, ValueType], list[Value]]
) -> KeyPlan:
    """The key ranges of a scan, with the values of parameters from `value_of`."""
    by_column: dict[str, list[Restriction]] = {}
    for restriction in scan.restrictions:
        if restriction.other is None:
            by_column.setdefault(restriction.column.column, []).append(restriction)
    prefixes: list[list[Value]] = [[]]
    used = 0
    for name in table.key_names:
        equal = [
            restriction for restriction in by_column.get(name, ()) if restriction.comparison == "="
        ]
        if not equal:
            break
        kind = table.type_of[name]
        values = _listed(equal[0], kind, value_of)
        if len(prefixes) * len(values) > _RANGES_MAX:
            break
        prefixes = [[*prefix, value] for prefix, value in itertools.product(prefixes, values)]
        used += 1
    rest = table.key_names[used] if used < len(table.key_names) else None
    bounds = [
        restriction
        for restriction in by_column.get(rest or "", ())
        if restriction.comparison != "="
    ]
    ranges = [
        span
        for prefix in prefixes
        if (span := _range(table, prefix, rest, bounds, value_of)) is not None
    ]
    covered = set(table.key_names[:used]) | ({rest} if bounds and rest else set())
    count = sum(len(by_column.get(name, ())) for name in table.key_names[:used]) + len(bounds)
    is_exact = count == len(scan.restrictions) and all(
        len(by_column[name]) == 1 for name in table.key_names[:used]
    )
    return KeyPlan(tuple(ranges), is_exact and set(by_column) <= covered)


def _listed(
    restriction: Restriction,
    kind: ValueType,
    value_of: Callable[[Constant, ValueType], list[Value]],
) -> list[Value]:
    """The values that a column may equal, each once; equality with NULL is never true."""
    values: dict[Value, None] = {}
    for constant in restriction.constants:
        values.update((value, None) for value in value_of(constant, kind) if value is not None)
    return list(values)


def _range(
    table: Table,
    prefix: list[Value],
    column: str | None,
    bounds: Sequence[Restriction],
    value_of: Callable[[Constant, ValueType], list[Value]],
) -> KeyRange | None:
    start = table.encoded_key_of(prefix)
    low: bytes = start
    high = successor(start)
    if column is None:
        return KeyRange(low, high)
    part = next(key_part for key_part in table.key if key_part.name == column)
    if bounds:  # a comparison with NULL is never true
        nothing = table.encoded_key_of([*prefix, None])
        if part.descending:
            high = nothing
        else:
            low = successor(nothing) or low
    for bound in bounds:
        value = value_of(bound.constants[0], table.type_of[column])[0]
        if value is None:
            return None
        encoded = table.encoded_key_of([*prefix, value])
        next_key = successor(encoded)
        if _is_from_below(bound.comparison, descending=part.descending):
            inclusive = bound.comparison in ("<=", ">=")
            edge = encoded if inclusive else next_key
            low = max(low, edge) if edge is not None else low
        else:
            edge = next_key if bound.comparison in ("<=", ">=") else encoded
            high = edge if high is None or (edge is not None and edge < high) else high
    return KeyRange(low, high) if high is None or low < high else None


def _is_from_below(comparison: Comparison, *, descending: bool) -> bool:
    return (comparison in (">", ">=")) is not descending
