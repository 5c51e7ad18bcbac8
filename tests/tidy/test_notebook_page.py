"""The stored notebook of docs/notebooks/: whole, without outputs, and of the public names.

tests/integration/test_notebook.py executes it.
"""

from __future__ import annotations

import ast
from pathlib import Path

import nbformat
import pytest

import tidegate
from tests.tidy.printed_commands import REPOSITORY
from tidegate.spark_consumer.library.builder import StreamBuilder
from tidegate.spark_consumer.library.query import TidegateQuery

PATHS = sorted((REPOSITORY / "docs" / "notebooks").glob("*.ipynb"))
_QUERY_LINES_MAX = 10


def cells(path):
    return [one for one in nbformat.read(path, as_version=4).cells if one.cell_type == "code"]


def test_there_is_one():
    assert [path.name for path in PATHS] == ["spanner_to_delta.ipynb"]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_it_is_whole_and_stored_without_outputs(path):
    nbformat.validate(nbformat.read(path, as_version=4))

    found = [(cell.execution_count, cell.outputs) for cell in cells(path)]
    assert found == [(None, [])] * len(found)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_it_holds_no_path_of_one_machine(path):
    text = path.read_text()

    for folder in (REPOSITORY, Path.home(), Path("/tmp")):
        assert f"{folder}/" not in text


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_its_calls_are_of_the_library(path):
    used = {"tg": set(), "query": set()}
    for cell in cells(path):
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                used.setdefault(node.value.id, set()).add(node.attr)

    assert used["tg"] <= set(tidegate.__all__)
    assert {"session", "stream", "as_of", "audit", "releases", "plot_releases"} <= used["tg"]
    assert {"status", "awaitRelease", "stop"} == used["query"] <= set(dir(TidegateQuery))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_its_query_is_about_ten_lines_long(path):
    (found,) = [cell.source for cell in cells(path) if "tg.stream(" in cell.source]
    (query, *_) = ast.parse(found).body

    assert query.end_lineno - query.lineno + 1 <= _QUERY_LINES_MAX
    methods = {node.attr for node in ast.walk(query) if isinstance(node, ast.Attribute)}
    assert methods <= {name for name in vars(StreamBuilder) if name[0] != "_"} | {"stream"}
