"""Each unit test file has a module, or a package, that it tests."""

from __future__ import annotations

from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]

SOURCES = PROJECT / "src" / "spanner_simulator"

TESTS = PROJECT / "tests" / "unit"


@pytest.mark.parametrize(
    "test",
    [
        str(path.relative_to(TESTS))
        for path in sorted(TESTS.rglob("test_*.py"))
        # Properties look at several modules at once.
        if not path.stem.endswith("_properties")
    ],
)
def test_no_test_file_has_lost_its_module(test):
    """A module that moves takes its tests along."""
    path = SOURCES / test
    module = path.with_name(path.name.removeprefix("test_"))
    package = path.with_name(path.stem.removeprefix("test_"))

    assert module.exists() or package.is_dir(), test
