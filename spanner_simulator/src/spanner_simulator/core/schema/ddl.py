"""DDL text to statements, in the dialect of the database."""

from __future__ import annotations

from typing import assert_never

from spanner_simulator.core.schema import google_ddl, postgres_ddl
from spanner_simulator.core.schema.statements import Statement
from spanner_simulator.core.values import Dialect


def parse_ddl(text: str, dialect: Dialect = "GOOGLE_STANDARD_SQL") -> Statement:
    """One DDL statement. Raises `SpannerError`: INVALID_ARGUMENT, or UNIMPLEMENTED by name."""
    match dialect:
        case "GOOGLE_STANDARD_SQL":
            return google_ddl.parse_ddl(text)
        case "POSTGRESQL":
            return postgres_ddl.parse_ddl(text)
        case _:
            assert_never(dialect)
