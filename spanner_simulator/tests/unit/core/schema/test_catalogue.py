from __future__ import annotations

from pathlib import Path

import pytest

from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.ddl import parse_ddl
from spanner_simulator.core.schema.statement_rules import apply_statement
from spanner_simulator.core.values import Dialect
from spanner_simulator.errors import SpannerError

# What Google's emulator answered to statements; none means OK. What it is no authority
# on is left out, and so are features that the simulator has not and what it refuses in other words.
CORPUS = Path(__file__).parent / "corpus"


def sections(name: str) -> list[list[tuple[str, str]]]:
    """Databases, each with its statements and their answers in order."""
    found: list[list[tuple[str, str]]] = []
    for line in (CORPUS / name).read_text().splitlines():
        if line.startswith("#"):
            found.append([])
        elif line.startswith("    "):
            statement, answer = found[-1][-1]
            found[-1][-1] = (statement, line[4:] if answer == "OK" else f"{answer}\n{line[4:]}")
        else:
            found[-1].append((line, "OK"))
    return found


def answers(dialect: Dialect, statements: list[str]) -> list[str]:
    catalogue, found = Catalogue(dialect), []
    for statement in statements:
        try:
            apply_statement(catalogue, parse_ddl(statement, dialect), now_us=1)
            found.append("OK")
        except SpannerError as error:
            found.append(f"{error.code.name} {error.message}")
    return found


@pytest.mark.parametrize(
    ("dialect", "section"),
    [
        *(("GOOGLE_STANDARD_SQL", section) for section in sections("google.txt")),
        *(("POSTGRESQL", section) for section in sections("postgres.txt")),
    ],
)
def test_the_emulator_answered_the_same(dialect: Dialect, section: list[tuple[str, str]]) -> None:
    statements = [statement for statement, _ in section]
    assert list(zip(statements, answers(dialect, statements), strict=True)) == section


def test_all_kinds_of_things_share_one_namespace(make) -> None:
    before = [
        "CREATE SCHEMA a1",
        "CREATE TABLE a2 (k INT64, CONSTRAINT a3 CHECK (k > 1)) PRIMARY KEY (k)",
        "CREATE INDEX a4 ON a2 (k)",
        "CREATE CHANGE STREAM a5",
    ]
    made = make(*before)

    for number in range(1, 6):
        for statement in (
            f"CREATE SCHEMA A{number}",
            f"CREATE TABLE A{number} (k INT64) PRIMARY KEY (k)",
            f"CREATE INDEX A{number} ON a2 (k)",
            f"CREATE CHANGE STREAM A{number}",
        ):
            assert made.refusal(statement) == (
                f"FAILED_PRECONDITION Duplicate name in schema: A{number}."
            )
