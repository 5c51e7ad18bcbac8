"""docs/benchmarks.md and its pictures are those of the figures in benchmarks/results/."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
RESULTS = REPOSITORY / "benchmarks" / "results"
PAGE = REPOSITORY / "docs" / "benchmarks.md"
PICTURES = [
    name
    for name in re.findall(r"\]\(assets/benchmark-([\w-]+)\.svg\)", PAGE.read_text())
    if (RESULTS / f"{name}.json").exists()
]


@pytest.fixture
def generator():
    path = REPOSITORY / "docs" / "generate_benchmarks.py"
    spec = importlib.util.spec_from_file_location("benchmarks_page", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_are_those_of_the_figures(generator):
    page = PAGE.read_text()
    assert generator.generated(page) == page


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_was_drawn_from_its_figures(name):
    source = RESULTS / f"{name}.json"
    text = (REPOSITORY / "docs" / "assets" / f"benchmark-{name}.svg").read_text()
    assert f"{source.name} {hashlib.sha256(source.read_bytes()).hexdigest()}" in text


def test_a_cell_is_the_median_with_the_least_and_the_most(generator, monkeypatch, tmp_path):
    monkeypatch.setattr(generator, "RESULTS", tmp_path)
    spread = {"median": 1234.5, "min": 9.25, "max": 20_000.0}
    one = {"median": 3.0, "min": 3.0, "max": 3.0}
    measured = [{"name": "a", "per_s": spread}, {"name": "b", "per_s": one}]
    machine = {"cores": 2, "processor": "P", "python": "3.11"}
    (tmp_path / "debezium-lake.json").write_text(
        json.dumps({"command": "c", "commit": "0a", "machine": machine, "measured": measured})
    )
    table = generator.table("debezium-lake")
    assert "| a | 1,234 (9.25 to 20,000) |  |" in table
    assert "| b | 3 |" in table
    assert "`c` at 0a; 2 cores of P, python 3.11" in table
