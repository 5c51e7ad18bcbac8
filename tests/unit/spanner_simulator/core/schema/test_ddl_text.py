from __future__ import annotations

from tidegate.spanner_simulator.core.schema.catalogue import Catalogue
from tidegate.spanner_simulator.core.schema.ddl import parse_ddl
from tidegate.spanner_simulator.core.schema.ddl_text import catalogue_ddl

STATEMENTS = [
    (
        "CREATE TABLE T (A INT64 NOT NULL, B STRING(36), C TIMESTAMP OPTIONS "
        "(allow_commit_timestamp = true)) PRIMARY KEY (A, B DESC)"
    ),
    "CREATE CHANGE STREAM S FOR T(C) OPTIONS (retention_period = '36h', exclude_insert = true)",
    "CREATE CHANGE STREAM Everything FOR ALL",
    "CREATE CHANGE STREAM Nothing",
    "CREATE ROLE reader",
    "CREATE ROLE boss",
    "GRANT SELECT ON CHANGE STREAM S TO ROLE reader",
    "GRANT ROLE reader TO ROLE boss",
]


def make(statements: list[str]) -> Catalogue:
    catalogue = Catalogue()
    for statement in statements:
        catalogue.apply(parse_ddl(statement), now_us=1)
    return catalogue


def test_the_text_makes_the_same_schema_again() -> None:
    text = catalogue_ddl(make(STATEMENTS))

    assert catalogue_ddl(make(text)) == text
    assert len(text) == len(STATEMENTS)


def test_options_are_printed_as_the_service_prints_them() -> None:
    text = catalogue_ddl(make(STATEMENTS))

    assert text[1] == (
        "CREATE CHANGE STREAM S FOR T(C) OPTIONS ( retention_period = '36h', "
        "exclude_insert = true )"
    )
