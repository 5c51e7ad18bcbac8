"""Writes which tests show a rule, the column `test` of the pages of rules, and the table of sinks.

A row whose first cell is `` `name` `` is a rule; `@pytest.mark.rule("name", …)` on a test says that
the test shows it.  The marks are read from the sources, so that no test is imported or run.
`./dev docs` runs this, and a test fails while a page is stale.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeGuard

REPOSITORY = Path(__file__).resolve().parents[1]
DOCS = REPOSITORY / "docs"
PAGES = ("reference/promises.md", "spanner-rules.md", "datastream-rules.md", "sinks.md")

_ROW = re.compile(r"^\| `(?P<name>[\w-]+)` \|(?P<cells>.*)\|(?P<test>[^|]*)\|$", re.MULTILINE)
_SINKS = re.compile(r"(<!-- generated: sinks -->\n).*?(<!-- end -->)", re.DOTALL)
_TABLE = re.compile(r"^\| rule \|.* \| test \|\n\| ---.*\n(?:\|.*\n)*", re.MULTILINE)


@dataclass
class Marks:
    """The marks of some sources."""

    tests: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Node ids of the tests that show a rule, by its name."""
    faults: list[str] = field(default_factory=list)
    """Marks that name no rule, or that pytest gives to no test."""


def rules(page: str) -> list[str]:
    """Return the names of the rules of a page, in order."""
    return [row["name"] for table in _TABLE.finditer(page) for row in _ROW.finditer(table[0])]


def generated(page: str, tests: Mapping[str, list[str]]) -> str:
    """Return the page with the tests of each rule."""

    def row(found: re.Match[str]) -> str:
        named = "<br>".join(f"`{test}`" for test in tests.get(found["name"], ()))
        return f"| `{found['name']}` |{found['cells']}| {named} |"

    page = _TABLE.sub(lambda table: _ROW.sub(row, table[0]), page)
    return _SINKS.sub(lambda found: f"{found[1]}{_sinks_table()}{found[2]}", page)


def without_sinks(page: str) -> str:
    """Return the page without its table of sinks, which are no rules."""
    return _SINKS.sub("", page)


def _sinks_table() -> str:
    """Return what each sink of the settings writes, when, and by which writer."""
    from tidegate.spark_consumer.sinks.kinds import KINDS  # noqa: PLC0415 - imports Spark

    rows = (
        f"| `{name}` | {kind.rows} | {kind.when} | {kind.writer} |\n"
        for name, kind in KINDS.items()
    )
    return "".join(("| sink | rows | when | writer |\n| --- | --- | --- | --- |\n", *rows))


def marks_of(tests: Path) -> Marks:
    """Return the marks of all sources below a folder."""
    marks = Marks()
    for path in sorted(tests.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "mark.rule" in text:
            collect(text, path.relative_to(tests.parent).as_posix(), marks)
    return marks


def collect(text: str, path: str, marks: Marks) -> None:
    """Add the marks of one source."""
    tree = ast.parse(text)
    found: dict[ast.Call, str] = {}
    if Path(path).name.startswith("test_"):
        found = dict(_marks_in(tree, path, _assigned(tree)))
    for node in ast.walk(tree):
        if not _is_mark(node):
            continue
        names = [one.value for one in node.args if isinstance(one, ast.Constant)]
        if not names or len(names) < len(node.args) or node.keywords:
            marks.faults.append(f"{path}:{node.lineno}: a mark takes names of rules, as texts")
        if node not in found:
            marks.faults.append(f"{path}:{node.lineno}: this mark is on no test")
            continue
        for name in names:
            if found[node] not in marks.tests[str(name)]:
                marks.tests[str(name)].append(found[node])


def _marks_in(
    scope: ast.Module | ast.ClassDef, node_id: str, values: Mapping[str, ast.expr]
) -> Iterator[tuple[ast.Call, str]]:
    """Yield each mark that pytest sees, with the node id of what it is on."""
    for node in scope.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            if "pytestmark" in _targets(node) and node.value is not None:
                yield from ((one, node_id) for one in _marks_below(node.value))
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            inner = f"{node_id}::{node.name}"
            yield from ((one, inner) for part in node.decorator_list for one in _marks_below(part))
            yield from _marks_in(node, inner, values)
        elif _is_test(node):
            test = f"{node_id}::{node.name}"
            parts = node.decorator_list
            yield from ((one, test) for part in parts for one in _marks_on(part, values))


def _is_test(node: ast.stmt) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef]:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    return node.name.startswith("test_")


def _marks_on(decorator: ast.expr, values: Mapping[str, ast.expr]) -> Iterator[ast.Call]:
    """Yield the marks of a decorator, and those of the cases that it lists or names."""
    yield from _marks_below(decorator)
    for name in ast.walk(decorator):
        if isinstance(name, ast.Name) and name.id in values:
            yield from _marks_below(values[name.id])


def _marks_below(node: ast.AST) -> list[ast.Call]:
    return [one for one in ast.walk(node) if _is_mark(one)]


def _is_mark(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.rule"


def _assigned(tree: ast.Module) -> dict[str, ast.expr]:
    """Return what a module's names have as their value."""
    return {
        name: node.value
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
        for name in _targets(node)
    }


def _targets(node: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [one.id for one in targets if isinstance(one, ast.Name)]


def faults(named: list[str], marks: Marks) -> list[str]:
    """Return what is wrong with the names of all pages and the marks of all tests."""
    return [
        *marks.faults,
        *(
            f"{name}: two rules have this name"
            for name in sorted({*named})
            if named.count(name) > 1
        ),
        *(
            f"{test}: no rule is named {name}"
            for name, tests in marks.tests.items()
            if name not in named
            for test in tests
        ),
        *(
            f"{name}: no test shows this rule"
            for name in dict.fromkeys(named)
            if not marks.tests.get(name)
        ),
    ]


def main() -> int:
    """Update the pages that are stale; the exit code."""
    marks, named = marks_of(REPOSITORY / "tests"), []
    for name in PAGES:
        page = DOCS / name
        before = page.read_text(encoding="utf-8")
        named += rules(before)
        after = generated(before, marks.tests)
        if after != before:
            page.write_text(after, encoding="utf-8")
        sys.stdout.write(f"{page.name}: {'up to date' if after == before else 'written'}\n")
    found = faults(named, marks)
    for fault in found:
        sys.stderr.write(f"error: {fault}\n")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
