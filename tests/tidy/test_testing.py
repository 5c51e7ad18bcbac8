"""docs/testing.md names tests and files that exist."""

from __future__ import annotations

import re
from pathlib import Path

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
    groups = {path.name for path in (REPOSITORY / "tests" / "simulation").glob("broken_*.py")}

    assert groups == set(re.findall(r"^\| `(broken_\w+\.py)` \|", PAGE, re.MULTILINE))


def test_every_mutant_that_the_page_names_exists():
    named = re.findall(r"\| mutant: (.+) \|$", PAGE, re.MULTILINE)
    groups = (REPOSITORY / "tests" / "simulation").glob("broken_*.py")
    known = {name for group in groups for name in re.findall(r'"([^"\n]+)"', group.read_text())}

    assert len(named) > 4
    assert [name for name in named if name not in known] == []


def test_every_blind_spot_has_a_test_and_a_proof():
    rows = re.findall(r"^\| ([^|]+) \| (`tests/unit/[^|]+) \| ([^|]+) \|$", PAGE, re.MULTILINE)

    assert len(rows) > 20
    assert [row for row in rows if row[2] != "by hand" and not row[2].startswith("mutant: ")] == []
