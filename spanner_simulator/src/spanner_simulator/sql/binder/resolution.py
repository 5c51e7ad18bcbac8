"""Functions and operators on bound arguments: which signature fits, and DuckDB's text for it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.sql.binder.binding import NOW_SQL, Binding
from spanner_simulator.sql.function_tables.functions import FUNCTIONS
from spanner_simulator.sql.function_tables.signatures import resolve
from spanner_simulator.sql.functions.time_routines import DEFAULT_ZONE
from spanner_simulator.sql.syntax import unsupported
from spanner_simulator.sql.terms.bound import Bound
from spanner_simulator.sql.terms.literals import text_literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spanner_simulator.sql.syntax import Node


_SLOT = re.compile(r"\{(\d+)(?:\.(count|part))?\}")


def apply(binding: Binding, name: str, arguments: Sequence[Bound], node: Node) -> Bound:
    """A function or operator on bound arguments. Raises `SpannerError` when none fits."""
    signatures = FUNCTIONS[binding.dialect].get(name)
    if signatures is None:
        raise unsupported(f"the {_kind(name)} {name}")
    found = resolve(signatures, arguments, binding.dialect)
    if found is None:
        raise unresolved(binding, name, arguments, node)
    typed = [
        one if kind.code in ("PART", "INTERVAL") else binding.coerce(one, kind)
        for one, kind in zip(arguments, found.types, strict=True)
    ]
    is_aggregate = any(one.is_aggregate for one in typed)
    return Bound(_filled(found.signature.text, typed), found.result, is_aggregate=is_aggregate)


def _filled(text: str, arguments: Sequence[Bound]) -> str:
    def slot(found: re.Match[str]) -> str:
        argument = arguments[int(found[1])]
        return text_literal(argument.name) if found[2] == "part" else argument.sql

    sqls = [argument.sql for argument in arguments]
    filled = _SLOT.sub(slot, text)
    for name, value in (
        ("{*}", ", ".join(sqls)),
        ("{||}", " || ".join(sqls)),
        ("{anynull}", " OR ".join(f"{sql} IS NULL" for sql in sqls)),
        ("{now}", NOW_SQL),
        ("{zone}", f"'{DEFAULT_ZONE}'"),
    ):
        if name in text:
            filled = filled.replace(name, value)
    return filled


def _kind(name: str) -> str:
    return "function" if name[0].isalpha() else "operator"


def unresolved(binding: Binding, name: str, arguments: Sequence[Bound], node: Node) -> SpannerError:
    """The function exists, but not for these types."""
    kind = _kind(name)
    types = ", ".join(binding.type_name(one) for one in arguments)
    if binding.is_postgres:
        message = f"[ERROR] {kind} does not exist: {name}({types})"
        return SpannerError(Code.NOT_FOUND, message)
    return binding.error(
        f"No matching signature for {kind} {name} for argument types: {types}", node
    )
