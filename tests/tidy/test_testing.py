"""docs/testing.md names tests and files that exist."""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

PAGE = (REPOSITORY / "docs" / "testing.md").read_text()


def is_missing(named: str) -> bool:
    """Whether `named`, a path or `path::test`, does not exist."""
    path, _, test = named.partition("::")
    place = REPOSITORY / path
    if not place.exists():
        return True
    return bool(test) and re.search(rf"^def {test}\(", place.read_text(), re.MULTILINE) is None


def test_every_test_that_the_page_names_exists():
    named = re.findall(r"`(tests/[^`*…]+)`", PAGE)

    assert len(named) > 20
    assert [one for one in named if is_missing(one)] == []


def test_a_test_that_does_not_exist_is_noticed():
    assert is_missing("tests/tidy/test_nothing.py")
    assert is_missing("tests/tidy/test_testing.py::test_nothing")
    assert not is_missing("tests/tidy/test_testing.py::test_a_test_that_does_not_exist_is_noticed")


def test_every_group_of_mutants_is_on_the_page():
    groups = {path.name for path in (REPOSITORY / "tests" / "simulation").glob("broken_*.py")}

    assert groups == set(re.findall(r"^\| `(broken_\w+\.py)` \|", PAGE, re.MULTILINE))
