"""Cuts the text of a DDL file into its statements, at the semicolons that end them.

Knows strings, quoted names and comments of both dialects and nothing else: what a statement means
is for the parser to say.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.spanner_simulator.core.values import Dialect

__all__ = ["split_ddl"]

_GOOGLE = re.compile(
    r'''
    (?P<comment> --[^\n]* | \#[^\n]* | /\*.*?\*/ )
    | (?P<text> """(?:\\.|.)*?""" | \'\'\'(?:\\.|.)*?\'\'\'
        | "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*' | `(?:\\.|[^`\\])*` )
    | (?P<end> ; )
    ''',
    re.VERBOSE | re.DOTALL,
)
_POSTGRES = re.compile(
    r"""
    (?P<comment> --[^\n]* | /\*.*?\*/ )
    | (?P<text> (?<![\w$])[eE]'(?:\\.|[^'\\])*' | '[^']*' | "[^"]*"
        | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$ )
    | (?P<end> ; )
    """,
    re.VERBOSE | re.DOTALL,
)


def split_ddl(text: str, dialect: Dialect = "GOOGLE_STANDARD_SQL") -> list[str]:
    """The statements of a file in their order, without semicolons and comments."""
    statements, statement, position = list[str](), list[str](), 0
    for found in (_POSTGRES if dialect == "POSTGRESQL" else _GOOGLE).finditer(text):
        statement.append(text[position : found.start()])
        position = found.end()
        match found.lastgroup:
            case "end":
                statements.append("".join(statement).strip())
                statement.clear()
            case "comment":
                statement.append(" ")
            case _:
                statement.append(found.group())
    statements.append(("".join(statement) + text[position:]).strip())
    return [one for one in statements if one]
