"""Each module of the core has a test file, and each unit test file a module that it tests."""

from __future__ import annotations

from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]

SOURCES = PROJECT / "src" / "spanner_simulator"

TESTS = PROJECT / "tests" / "unit"

# Modules without a test file of their own, each with the reason.
ELSEWHERE = {
    "core/rng.py": "a port: a protocol without behaviour",
    "core/schema/analysis.py": "a port: a protocol without behaviour",
    "core/schema/definitions.py": "only classes of fields",
    "core/schema/statements.py": "only classes of fields",
}


def modules(folder: Path) -> list[str]:
    return [str(path.relative_to(SOURCES)) for path in sorted(folder.rglob("*.py"))]


@pytest.mark.parametrize(
    "module",
    [
        module
        for module in modules(SOURCES / "core")
        if module not in ELSEWHERE and not module.endswith("__init__.py")
    ],
)
def test_every_module_of_the_core_has_its_test_file(module):
    path = TESTS / module

    assert path.with_name(f"test_{path.name}").exists(), module


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


@pytest.mark.parametrize("module", sorted(ELSEWHERE))
def test_every_exception_is_still_one(module):
    assert (SOURCES / module).exists()
