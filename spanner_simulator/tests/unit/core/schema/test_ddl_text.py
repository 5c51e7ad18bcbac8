from __future__ import annotations

from pathlib import Path

import pytest

from spanner_simulator.core.values import Dialect

# Each statement as it was written; below it as the service prints it, if it prints it otherwise.
CORPUS = Path(__file__).parent / "corpus"


def statements(name: str) -> dict[str, str]:
    """Printed statements by the written ones."""
    found: dict[str, list[str]] = {}
    for line in (CORPUS / name).read_text().splitlines():
        if line.startswith("    "):
            found[list(found)[-1]].append(line[4:])
        else:
            found[line] = []
    return {written: "\n".join(printed) or written for written, printed in found.items()}


@pytest.mark.parametrize(
    ("dialect", "name"),
    [("GOOGLE_STANDARD_SQL", "printed_google.txt"), ("POSTGRESQL", "printed_postgres.txt")],
)
def test_statements_are_printed_as_the_service_prints_them(
    make, dialect: Dialect, name: str
) -> None:
    text = make(*statements(name), dialect=dialect).ddl()
    assert sorted(text) == sorted(statements(name).values())
    assert make(*text, dialect=dialect).ddl() == text
