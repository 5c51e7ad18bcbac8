"""Each source module has a test file of its own, and each unit test file a module that it tests."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

TESTS = REPOSITORY / "tests"

PACKAGES = ("schemas", "producer", "spark_consumer", "spanner_simulator", "local_stack")

# Folders that the rule holds.
HELD = ("local_stack", "spark_consumer/core", "spanner_simulator/core")

# Patterns of modules without a test file of their own, each with the reason.
ELSEWHERE = {
    "*/__init__.py": "imports only",
    "*/__main__.py": "calls the command",
    "*/core/batch_e[vf]*.py": "only classes of fields: test_batch_run.py",
    "*/core/files.py": "a port: protocols without behaviour",
    "*/core/schema/statements.py": "only classes of fields",
    "local_stack/customers.py": "needs Spanner: the demo is its test",
    "local_stack/demo*.py": "needs the whole stack: the demo is its test",
    "local_stack/judge_*.py": "one judge in several files: test_judge.py",
    "local_stack/show.py": "needs the whole stack: the demo is its test",
    "local_stack/up.py": "needs the whole stack: the demo is its test",
}


def modules(*folders: str) -> list[str]:
    return [
        str(path.relative_to(REPOSITORY))
        for folder in folders
        for path in sorted((REPOSITORY / folder).rglob("*.py"))
    ]


@pytest.mark.parametrize(
    "module",
    [
        module
        for module in modules(*HELD)
        if not any(fnmatch(module, pattern) for pattern in ELSEWHERE)
    ],
)
def test_every_module_has_its_test_file(module):
    inside = Path(module)

    assert list(TESTS.glob(f"unit/{inside.parent}/test_{inside.stem}.py")), module


@pytest.mark.parametrize(
    "test",
    [
        str(path.relative_to(TESTS / "unit"))
        for package in PACKAGES
        for path in sorted((TESTS / "unit" / package).rglob("test_*.py"))
        # Properties, and statements with their recorded answers, look at several modules at once.
        if not path.stem.endswith(("_properties", "_queries", "_answers"))
    ],
)
def test_no_test_file_has_lost_its_module(test):
    """A module that moves takes its tests along."""
    path = REPOSITORY / test
    module = path.with_name(path.name.removeprefix("test_"))
    package = path.with_name(path.stem.removeprefix("test_"))

    assert module.exists() or package.is_dir(), test


@pytest.mark.parametrize("pattern", sorted(ELSEWHERE))
def test_every_exception_is_still_one(pattern):
    assert any(fnmatch(module, pattern) for module in modules(*PACKAGES))
