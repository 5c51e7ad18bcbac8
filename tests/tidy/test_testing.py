"""docs/testing.md names tests and files that exist."""

from __future__ import annotations

import re
from pathlib import Path

from tests.mutants.mutants import MUTANTS

REPOSITORY = Path(__file__).resolve().parents[2]

PAGE = (REPOSITORY / "docs" / "testing.md").read_text()


def is_missing(named: str) -> bool:
    """Whether `named`, a path or `path::test`, does not exist."""
    path, *parts = named.split("::")
    place = REPOSITORY / path
    if not place.exists():
        return True
    text = place.read_text() if parts else ""
    for depth, part in enumerate(parts):
        kind = "def" if part.startswith("test_") else "class"
        found = re.search(rf"^{depth * '    '}{kind} {part}\b", text, re.MULTILINE)
        if found is None:
            return True
        text = re.split(r"^class ", text[found.end() :], maxsplit=1, flags=re.MULTILINE)[0]
    return False


def test_every_test_that_the_page_names_exists():
    named = re.findall(r"`(tests/[^`*…]+)`", PAGE)

    assert len(named) > 20
    assert [one for one in named if is_missing(one)] == []


def test_a_test_that_does_not_exist_is_noticed():
    assert is_missing("tests/tidy/test_nothing.py")
    assert is_missing("tests/tidy/test_testing.py::test_nothing")
    assert is_missing("tests/unit/producer/core/test_worker.py::TestOpening::test_nothing")
    assert is_missing("tests/unit/producer/core/test_worker.py::TestNothing")
    # It stands in another class.
    moved = "TestOpening::test_nobody_opens_a_stream_in_a_slot_that_holds_records"
    assert is_missing(f"tests/unit/producer/core/test_worker.py::{moved}")
    assert not is_missing("tests/tidy/test_testing.py::test_a_test_that_does_not_exist_is_noticed")


def test_every_group_of_mutants_is_on_the_page():
    simulated = {path.name for path in (REPOSITORY / "tests" / "simulation").glob("broken_*.py")}
    others = {path.name for path in (REPOSITORY / "tests" / "mutants").glob("broken_*.py")}

    assert simulated == set(re.findall(r"^\| `(broken_\w+\.py)` \|", PAGE, re.MULTILINE))
    named = re.findall(r"^\| `tests/mutants/(broken_\w+\.py)` \|", PAGE, re.MULTILINE)
    assert others == set(named)


def blind_spots() -> list[tuple[str, set[str], list[str]]]:
    """Fault, tests and mutants of each row."""
    rows = re.findall(
        r"^\| ([^|]+) \| (`tests/(?:unit|spark)/[^|]+) \| ([^|]+) \|$", PAGE, re.MULTILINE
    )
    return [
        (
            fault,
            set(re.findall(r"`([^`]+)`", tests)),
            re.sub(r"^mutants?: ", "", shown_by).split("; "),
        )
        for fault, tests, shown_by in rows
    ]


def test_every_blind_spot_has_a_test_and_a_mutant():
    groups = (REPOSITORY / "tests" / "simulation").glob("broken_*.py")
    simulated = {name for group in groups for name in re.findall(r'"([^"\n]+)"', group.read_text())}
    known = simulated | {mutant.name for mutant in MUTANTS}
    rows = blind_spots()

    assert len(rows) > 20
    assert [(row[0], name) for row in rows for name in row[2] if name not in known] == []


def test_mutants_of_unit_tests_are_caught_by_the_tests_of_their_row():
    rows = {name: tests for _, tests, names in blind_spots() for name in names}

    assert [mutant.name for mutant in MUTANTS if mutant.name not in rows] == []
    assert [one.name for one in MUTANTS if not set(one.tests) <= rows[one.name]] == []
    by_name = {mutant.name: mutant for mutant in MUTANTS}
    for fault, tests, names in blind_spots():
        if set(names) <= by_name.keys():
            assert tests == {test for name in names for test in by_name[name].tests}, fault
