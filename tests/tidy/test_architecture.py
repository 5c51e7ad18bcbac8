"""docs/architecture.md describes the folders that exist, and about how large they are."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

DOCS = REPOSITORY / "docs"

PAGE = (DOCS / "architecture.md").read_text()

# Rows are rounded to hundreds; beyond that a fifth may change before the table is written again.
TOLERANCE = 0.2


@pytest.fixture(scope="module")
def generator():
    spec = importlib.util.spec_from_file_location("architecture", DOCS / "generate_architecture.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows(heading: str) -> list[list[str]]:
    """Return the cells of a section's rows with three columns that begin with a code word."""
    (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line.startswith("| `") and line.count(" | ") == 2
    ]
    assert cells
    return cells


def test_the_table_of_lines_is_about_right(generator):
    counted, printed = generator.counted(), generator.printed(PAGE)

    assert list(printed) == list(counted), "stale: type ./dev docs"
    assert {
        name: (lines, counted[name])
        for name, lines in printed.items()
        if abs(lines - counted[name]) > max(150, TOLERANCE * counted[name])
    } == {}, "stale: type ./dev docs"


def test_a_page_written_again_is_about_right_and_unchanged_by_a_second_run(generator):
    page = generator.generated(PAGE.replace("| `schemas/` |", "| `nonsense/` |"))

    assert list(generator.printed(page)) == list(generator.counted())
    assert generator.generated(page) == page


def test_every_folder_and_first_file_of_the_map_exists():
    missing = []
    for folder, _, first in rows("What is where"):
        root = REPOSITORY / folder.strip("`")
        names = re.findall(r"`([^`]+)`", first)
        missing += [str(p) for p in (root, *(root / name for name in names)) if not p.exists()]

    assert missing == []


def test_every_room_is_on_the_map():
    mapped = {cells[0].strip("`/") for cells in rows("What is where")}
    rooms = {
        f"{package}/{path.name}"
        for package in ("producer", "spark_consumer", "local_stack")
        for path in (REPOSITORY / package).iterdir()
        if any(path.glob("*.py"))
    }

    assert rooms - mapped == set(), "add a row to What is where"


def test_every_file_that_the_page_names_exists():
    named = re.findall(r"`((?:producer|spark_consumer|schemas|local_stack|tests)/[^`]+)`", PAGE)

    assert named
    assert [name for name in named if "*" not in name and not (REPOSITORY / name).exists()] == []
