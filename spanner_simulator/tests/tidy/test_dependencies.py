"""The package asks for what its code imports, as ranges, and for nothing else."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

from spanner_simulator.server.sql_support import LIBRARIES

PROJECT = Path(__file__).resolve().parents[2]

SETTINGS = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]

# Distributions by the top-level module that they are imported as.
IMPORTED_AS = {"google-cloud-spanner": "google", "grpcio": "grpc"}

# Imported by the plug-in, which only pytest loads.
GIVEN = {"pytest"}

# Imported by DuckDB for functions in Python, and not among its own dependencies.
INDIRECT = {"numpy"}


def modules(requirements: list[str]) -> set[str]:
    names = [re.match(r"[\w-]+", one).group() for one in requirements]
    return {IMPORTED_AS.get(name, name) for name in names}


def imported() -> set[str]:
    tops = set()
    for path in (PROJECT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                tops |= {one.name.split(".")[0] for one in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                tops.add(node.module.split(".")[0])
    return tops - set(sys.stdlib_module_names) - {"spanner_simulator"}


def test_everything_imported_is_a_dependency_and_the_other_way_round():
    declared = modules(SETTINGS["dependencies"] + SETTINGS["optional-dependencies"]["sql"])
    assert declared - INDIRECT == imported() - GIVEN


def test_the_extra_is_what_the_simulator_looks_for():
    assert modules(SETTINGS["optional-dependencies"]["sql"]) == set(LIBRARIES)


@pytest.mark.parametrize(
    "requirement", SETTINGS["dependencies"] + SETTINGS["optional-dependencies"]["sql"]
)
def test_no_version_is_pinned(requirement):
    assert "==" not in requirement
    assert ">=" in requirement
