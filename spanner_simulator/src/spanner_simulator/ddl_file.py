"""Splits the text of a DDL file into its statements, at the semicolons that end them."""

from __future__ import annotations

from spanner_simulator.core.tokens import scan
from spanner_simulator.core.values import Dialect


def split_ddl(text: str, dialect: Dialect = "GOOGLE_STANDARD_SQL") -> list[str]:
    """The statements of a file in their order, without semicolons and comments."""
    statements: list[list[str]] = [[]]
    for token in scan(text, dialect):
        if token.is_symbol(";"):
            statements.append([])
        else:
            statements[-1].append(" " if token.kind in ("comment", "hint") else token.text)
    written = ("".join(pieces).strip() for pieces in statements)
    return [statement for statement in written if statement]
