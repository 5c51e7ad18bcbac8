"""Names and texts as they stand in SQL: of Spark, and of delta-rs.

Names come from sources, settings and paths.  Every statement and every parsed column name takes
them from here, so that no name ends where its own text says so.
"""

from __future__ import annotations


def quoted(*names: str) -> str:
    """Return a name of one or more parts for Spark: in backticks, those in it doubled."""
    return ".".join(f"`{name.replace('`', '``')}`" for name in names)


def double_quoted(name: str) -> str:
    """Return a name for delta-rs, whose SQL has the standard's double quotes."""
    return '"{}"'.format(name.replace('"', '""'))


def text_literal(text: str) -> str:
    """Return a text for Spark, in which a backslash escapes."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
