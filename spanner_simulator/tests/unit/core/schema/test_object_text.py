from __future__ import annotations

import pytest

GOOGLE, POSTGRES = "GOOGLE_STANDARD_SQL", "POSTGRESQL"
TABLES = {
    GOOGLE: (
        "CREATE TABLE t (k INT64) PRIMARY KEY (k)",
        "CREATE TABLE u (k INT64) PRIMARY KEY (k)",
    ),
    POSTGRES: (
        "CREATE TABLE t (k bigint PRIMARY KEY)",
        "CREATE TABLE u (k bigint PRIMARY KEY)",
    ),
}


@pytest.mark.parametrize("dialect", [GOOGLE, POSTGRES])
@pytest.mark.parametrize(
    "statement",
    [
        "CREATE SCHEMA s",
        "CREATE VIEW v SQL SECURITY DEFINER AS SELECT 1 AS a",
        "CREATE ROLE r",
        "CREATE CHANGE STREAM f",
    ],
)
def test_what_both_dialects_write_alike(make, dialect, statement) -> None:
    made = make(*TABLES[dialect], statement, dialect=dialect)

    assert statement in made.ddl()


@pytest.mark.parametrize(
    ("dialect", "text"),
    [
        (
            GOOGLE,
            "CONSTRAINT c FOREIGN KEY(k) REFERENCES t(k) ON DELETE CASCADE",
        ),
        (
            POSTGRES,
            "CONSTRAINT c FOREIGN KEY (k) REFERENCES t(k) ON DELETE CASCADE",
        ),
    ],
)
def test_a_dialect_fills_in_what_differs(make, dialect, text) -> None:
    made = make(*TABLES[dialect], f"ALTER TABLE u ADD {text}", dialect=dialect)

    assert any(text in statement for statement in made.ddl())
