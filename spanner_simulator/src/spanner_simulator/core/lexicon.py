"""The lexical rules of the two dialects, in all that they differ.

One scanner (`tokens`) and one way to quote names work for both; a `Lexicon` is their table.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from spanner_simulator.core.values import Dialect


@dataclass(frozen=True, slots=True)
class Lexicon:
    """The lexical rules of one dialect."""

    # Each alternative is a group named as the kind of token; together they match any text.
    pattern: re.Pattern[str]
    # Words that must be quoted to be names, in upper case.
    reserved: frozenset[str]
    # What may be printed as a name without quotes, unless it is reserved.
    plain_name: re.Pattern[str]
    # Around a name, and the escape of that character inside; None: it is not allowed inside.
    name_quote: str
    name_quote_inside: str | None
    # Names without quotes are folded to lower case.
    folds_names: bool
    # A doubled quote inside a text is one quote.
    doubles_quotes: bool
    # Texts have escape sequences: all but raw ones, or only those that begin with E.
    escapes_only_after: str | None
    # A backslash before any other letter is that letter; otherwise it is an error.
    any_escape: bool

    def quoted(self, name: str) -> str:
        """A name with quotes where each part needs them; a schema's dot stays outside."""
        return ".".join(self.quoted_part(part) for part in name.split("."))

    def quoted_part(self, part: str) -> str:
        """A name without a schema, with quotes if it needs them."""
        if self.plain_name.fullmatch(part) and part.upper() not in self.reserved:
            return part
        quote = self.name_quote
        if self.name_quote_inside is not None:
            part = part.replace(quote, self.name_quote_inside)
        return f"{quote}{part}{quote}"

    def text(self, content: str) -> str:
        """A text literal."""
        if self.doubles_quotes:
            return "'" + content.replace("'", "''") + "'"
        return "'" + content.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"


_NUMBER = r"(?P<number>0[xX][0-9a-fA-F]+|(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)"
_GOOGLE_TEXT: Final = r"""
    (?:'{3}(?:\\.|[^\\])*?'{3} | "{3}(?:\\.|[^\\])*?"{3}
      | '(?:\\.|[^'\\\n])*' | "(?:\\.|[^"\\\n])*")
"""
_GOOGLE_PATTERN: Final = re.compile(
    rf"""
    (?P<blank>\s+)
    | (?P<comment>--[^\n]* | \#[^\n]* | /\*.*?\*/)
    | (?P<bytes>(?:[bB][rR]?|[rR][bB]){_GOOGLE_TEXT})
    | (?P<text>[rR]?{_GOOGLE_TEXT})
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | {_NUMBER}
    | (?P<quoted_name>`(?:\\.|[^`\\])*`)
    | (?P<parameter>@[A-Za-z_][A-Za-z0-9_]*)
    | (?P<symbol>=>|<=|>=|<>|!=|\|\||::|[-+*/(),.<>=;@{{}}\[\]&|^~%:])
    | (?P<open>['"`])
    | (?P<illegal>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_POSTGRES_PATTERN: Final = re.compile(
    rf"""
    (?P<blank>\s+)
    | (?P<hint>/\*@.*?(?:\*/|\Z))
    | (?P<comment>--[^\n]* | /\*.*?\*/)
    | (?P<text>[eE]'(?:\\.|''|[^'\\])*' | '(?:''|[^'])*'
        | \$(?P<tag>(?:[A-Za-z_\u0080-\U0010ffff]\w*)?)\$.*?\$(?P=tag)\$)
    | (?P<parameter>\$\d+)
    | (?P<name>[A-Za-z_\u0080-\U0010ffff][A-Za-z0-9_$\u0080-\U0010ffff]*)
    | {_NUMBER}
    | (?P<quoted_name>"(?:""|[^"])*")
    | (?P<symbol>::|=>|<=|>=|<>|!=|\|\||->>|->|[-+*/(),.<>=;@{{}}\[\]&|^~%:?!\#])
    | (?P<open>['"])
    | (?P<illegal>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_GOOGLE_RESERVED: Final = """
    ALL AND ANY ARRAY AS ASC ASSERT_ROWS_MODIFIED AT BETWEEN BY CASE CAST COLLATE CONTAINS CREATE
    CROSS CUBE CURRENT DEFAULT DEFINE DESC DISTINCT ELSE END ENUM ESCAPE EXCEPT EXCLUDE EXISTS
    EXTRACT FALSE FETCH FOLLOWING FOR FROM FULL GROUP GROUPING GROUPS HASH HAVING IF IGNORE IN INNER
    INTERSECT INTERVAL INTO IS JOIN LATERAL LEFT LIKE LIMIT LOOKUP MERGE NATURAL NEW NO NOT NULL
    NULLS OF ON OR ORDER OUTER OVER PARTITION PRECEDING PROTO RANGE RECURSIVE RESPECT RIGHT ROLLUP
    ROWS SELECT SET SOME STRUCT TABLESAMPLE THEN TO TREAT TRUE UNBOUNDED UNION UNNEST USING WHEN
    WHERE WINDOW WITH WITHIN
"""
_POSTGRES_RESERVED: Final = """
    ALL ANALYSE ANALYZE AND ANY ARRAY AS ASC ASYMMETRIC AUTHORIZATION BINARY BOTH CASE CAST CHECK
    COLLATE COLLATION COLUMN CONCURRENTLY CONSTRAINT CREATE CROSS CURRENT_CATALOG CURRENT_DATE
    CURRENT_ROLE CURRENT_SCHEMA CURRENT_TIME CURRENT_TIMESTAMP CURRENT_USER DEFAULT DEFERRABLE DESC
    DISTINCT DO ELSE END EXCEPT FALSE FETCH FOR FOREIGN FREEZE FROM FULL GRANT GROUP HAVING ILIKE IN
    INITIALLY INNER INTERSECT INTO IS ISNULL JOIN LATERAL LEADING LEFT LIKE LIMIT LOCALTIME
    LOCALTIMESTAMP NATURAL NOT NOTNULL NULL OFFSET ON ONLY OR ORDER OUTER OVERLAPS PLACING PRIMARY
    REFERENCES RETURNING RIGHT SELECT SESSION_USER SIMILAR SOME SYMMETRIC TABLE TABLESAMPLE THEN TO
    TRAILING TRUE UNION UNIQUE USER USING VARIADIC VERBOSE WHEN WHERE WINDOW WITH
"""

LEXICONS: Final[dict[Dialect, Lexicon]] = {
    "GOOGLE_STANDARD_SQL": Lexicon(
        pattern=_GOOGLE_PATTERN,
        reserved=frozenset(_GOOGLE_RESERVED.split()),
        plain_name=re.compile("[A-Za-z_][A-Za-z0-9_]*"),
        name_quote="`",
        name_quote_inside=None,
        folds_names=False,
        doubles_quotes=False,
        escapes_only_after=None,
        any_escape=False,
    ),
    "POSTGRESQL": Lexicon(
        pattern=_POSTGRES_PATTERN,
        reserved=frozenset(_POSTGRES_RESERVED.split()),
        plain_name=re.compile("[a-z_][a-z0-9_$]*"),
        name_quote='"',
        name_quote_inside='""',
        folds_names=True,
        doubles_quotes=True,
        escapes_only_after="e",
        any_escape=True,
    ),
}
