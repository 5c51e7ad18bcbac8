"""docs/testing.md names tests and files that exist, and so does each mutant of unit tests."""

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

    assert len(named) > 10
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


def test_every_mutant_names_tests_that_exist_and_is_listed():
    named = {(mutant.name, test) for mutant in MUTANTS for test in mutant.tests}

    assert sorted(pair for pair in named if is_missing(pair[1])) == []
    groups = {path.stem for path in (REPOSITORY / "tests" / "mutants").glob("broken_*.py")}
    listed = (REPOSITORY / "tests" / "mutants" / "mutants.py").read_text()
    assert [group for group in sorted(groups) if group not in listed] == []


def test_every_group_of_mutants_says_what_it_breaks():
    groups = [
        path
        for folder in ("simulation", "mutants")
        for path in sorted((REPOSITORY / "tests" / folder).glob("broken_*.py"))
    ]

    assert len(groups) > 4
    assert [path.name for path in groups if not path.read_text().startswith('"""')] == []


def test_the_page_is_short_enough_to_be_read():
    assert len(PAGE.split()) <= 2_500
