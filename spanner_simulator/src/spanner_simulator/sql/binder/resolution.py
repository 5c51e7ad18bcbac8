"""Functions and operators on bound arguments: which signature fits, and DuckDB's text for it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.sql.binder.binding import NOW_SQL, Binding
from spanner_simulator.sql.function_tables.google_functions import GOOGLE_FUNCTIONS
from spanner_simulator.sql.function_tables.postgres_functions import POSTGRES_FUNCTIONS
from spanner_simulator.sql.function_tables.signatures import resolve
from spanner_simulator.sql.functions.time_routines import DEFAULT_ZONE
from spanner_simulator.sql.syntax import unsupported
from spanner_simulator.sql.terms.bound import Bound
from spanner_simulator.sql.terms.literals import text_literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spanner_simulator.sql.function_tables.signatures import Signature
    from spanner_simulator.sql.syntax import Node


_SLOT = re.compile(r"\{(\d+)(?:\.(count|part))?\}")


def functions_of(binding: Binding) -> Mapping[str, tuple[Signature, ...]]:
    """The functions of the statement's dialect."""
    return POSTGRES_FUNCTIONS if binding.is_postgres else GOOGLE_FUNCTIONS


def apply(
    binding: Binding,
    name: str,
    arguments: Sequence[Bound],
    node: Node,
    *,
    symbol: str | None = None,
) -> Bound:
    """A function or operator on bound arguments. Raises `SpannerError` when none fits."""
    signatures = functions_of(binding).get(name)
    if signatures is None:
        if symbol is not None:
            raise unsupported(f"the operator {symbol}")
        raise not_found(binding, node.name or name.lower(), arguments, node)
    found = resolve(signatures, arguments, binding.dialect)
    if found is None:
        raise unresolved(
            binding,
            symbol or name,
            signatures,
            arguments,
            node=node,
            is_operator=symbol is not None,
        )
    typed = [
        one if kind.code in ("PART", "INTERVAL") else binding.coerce(one, kind)
        for one, kind in zip(arguments, found.types, strict=True)
    ]
    return Bound(
        _filled(found.signature.text, typed),
        found.result,
        is_aggregate=any(one.is_aggregate for one in typed),
    )


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


def not_found(binding: Binding, name: str, arguments: Sequence[Bound], node: Node) -> SpannerError:
    """There is no such function."""
    if binding.is_postgres:
        types = ", ".join(binding.type_name(one) for one in arguments)
        return SpannerError(
            Code.NOT_FOUND,
            f"[ERROR] function {name.lower()}({types}) does not exist\nHint: No function matches "
            "the given name and argument types. You might need to add explicit type casts.",
        )
    return binding.error(f"Function not found: {name}", node)


def unresolved(
    binding: Binding,
    name: str,
    signatures: Sequence[Signature],
    arguments: Sequence[Bound],
    *,
    node: Node,
    is_operator: bool = False,
) -> SpannerError:
    """The function exists, but not for these types."""
    names = [binding.type_name(one) for one in arguments]
    if binding.is_postgres:
        if is_operator:
            what = f"operator does not exist: {f' {name} '.join(names)}"
            return SpannerError(
                Code.NOT_FOUND,
                f"[ERROR] {what}\nHint: No operator matches the given name and argument types. "
                "You might need to add explicit type casts.",
            )
        return not_found(binding, name, arguments, node)
    kind = "operator" if is_operator else "function"
    if signatures[0].is_aggregate:
        kind = "aggregate function"
    shown = [_shown(one, name, is_operator=is_operator) for one in signatures]
    plural = "s" if len(shown) > 1 else ""
    return binding.error(
        f"No matching signature for {kind} {name} for argument types: {', '.join(names)}. "
        f"Supported signature{plural}: {'; '.join(shown)}",
        node,
    )


def _shown(signature: Signature, name: str, *, is_operator: bool) -> str:
    arguments = [*signature.arguments, *([f"{signature.rest}, ..."] if signature.rest else [])]
    if is_operator:
        return f" {name} ".join(arguments) if len(arguments) > 1 else f"{name}{arguments[0]}"
    return f"{name}({', '.join(arguments)})"
