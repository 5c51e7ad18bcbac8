"""A catalogue made by statements, for the tests of the schema."""

from __future__ import annotations

from typing import Protocol

import pytest

from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.ddl import parse_ddl
from spanner_simulator.core.schema.ddl_text import catalogue_ddl
from spanner_simulator.core.schema.statement_rules import apply_statement
from spanner_simulator.core.values import Dialect
from spanner_simulator.errors import SpannerError


class Made:
    """A catalogue and the ways in which tests change it and look at it."""

    def __init__(self, dialect: Dialect) -> None:
        self.catalogue = Catalogue(dialect)

    def apply(self, *statements: str) -> Made:
        for statement in statements:
            apply_statement(self.catalogue, parse_ddl(statement, self.catalogue.dialect), now_us=1)
        return self

    def refusal(self, statement: str) -> str:
        """The code and text of a refusal; a refused statement must have changed nothing."""
        before = catalogue_ddl(self.catalogue), dict(self.catalogue.tables)
        with pytest.raises(SpannerError) as caught:
            self.apply(statement)
        assert (catalogue_ddl(self.catalogue), dict(self.catalogue.tables)) == before
        return f"{caught.value.code.name} {caught.value.message}"

    def ddl(self) -> list[str]:
        return catalogue_ddl(self.catalogue)


class Maker(Protocol):
    def __call__(self, *statements: str, dialect: Dialect = ...) -> Made: ...


@pytest.fixture
def make() -> Maker:
    def build(*statements: str, dialect: Dialect = "GOOGLE_STANDARD_SQL") -> Made:
        return Made(dialect).apply(*statements)

    return build
