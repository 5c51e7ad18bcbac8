"""Each hint has a row in `tests/remedies.py`: a test that carries it out, or why there is none."""

from __future__ import annotations

import ast
import importlib
from collections import Counter
from pathlib import Path

from tests.remedies import (
    BY_VALUE,
    DONE,
    GENERAL,
    RESET,
    RESTARTED,
    WITHOUT,
)
from tidegate.schemas.errors import TidegateError

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (
    "schemas", "producer", "spark_consumer", "local_stack", "tidegate/lineage", "tidegate/program"
)  # fmt: skip
TABLES = (DONE, RESET, RESTARTED, BY_VALUE, WITHOUT)


def sources():
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path.relative_to(ROOT), path.read_text()


def classes():
    """The names of all errors but the general ones and the root."""
    for path, text in sources():
        if path.name.endswith("errors.py") or "Error):  # noqa: N818" in text:
            name = ".".join(path.with_suffix("").parts)
            importlib.import_module(f"tidegate.{name.removeprefix('tidegate.')}")
    found, queue = set(), [TidegateError]
    while queue:
        one = queue.pop()
        queue += one.__subclasses__()
        if one.__module__.startswith("tidegate."):
            found.add(one.__name__)
    return found - GENERAL - {"TidegateError"}


def places():
    """The modules that raise a general error with a hint."""
    for path, text in sources():
        for node in ast.walk(ast.parse(text)):
            if (
                isinstance(node, ast.Call)
                and getattr(node.func, "id", "") in GENERAL
                and any(keyword.arg == "hint" for keyword in node.keywords)
            ):
                yield str(path)


def test_each_hint_has_one_row_and_no_row_is_of_another():
    rows = Counter(name for table in TABLES for name in table)
    needed = classes() | set(places())
    assert sorted(needed - set(rows)) == [], "add a row to tests/remedies.py"
    assert sorted(set(rows) - needed) == [], "remove the row from tests/remedies.py"
    assert [name for name, count in rows.items() if count > 1] == []


def test_each_test_that_a_row_names_exists():
    named = {test for tests in DONE.values() for test in tests}
    named |= {*RESET.values(), *RESTARTED.values()}
    missing = []
    for test in sorted(named):
        file, _, name = test.partition("::")
        tree = (
            ast.parse((ROOT / file).read_text()) if (ROOT / file).exists() else ast.Module([], [])
        )
        if name not in {one.name for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)}:
            missing.append(test)
    assert missing == []
