"""The pages of docs/reference say what the programs say: no more, no less."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path

import pytest

from tidegate.schemas.errors import TidegateError

REPOSITORY = Path(__file__).resolve().parents[2]

DOCS = REPOSITORY / "docs"

PAGES = {page.name: page.read_text() for page in sorted((DOCS / "reference").glob("*.md"))}

# Where the errors of the two programs and of what they share are defined.
ERRORS = (
    "tidegate.lineage.errors",
    "tidegate.producer.datastream.errors",
    "tidegate.producer.errors",
    "tidegate.schemas.errors",
    "tidegate.spark_consumer.errors",
)


@pytest.fixture(scope="module")
def generator():
    spec = importlib.util.spec_from_file_location("operations", DOCS / "generate_operations.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows(page: str) -> dict[str, list[str]]:
    """Return the rows of all tables of one page, by what the first cell names."""
    found = {}
    for line in PAGES[page].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        for name in re.findall(r"`([^`]+)`", cells[0]) if line.startswith("| ") else ():
            found[name] = cells[1:]
    return found


def test_generated_tables_are_fresh(generator):
    stale = [name for name, text in PAGES.items() if generator.generated(text) != text]
    assert stale == [], "stale: type ./dev docs"


def test_every_generated_table_is_on_one_page(generator):
    tables = re.findall(r"<!-- generated: ([a-z ]+) -->", "".join(PAGES.values()))
    assert sorted(tables) == sorted(generator.TABLES)


def test_a_table_follows_its_settings(generator):
    table = generator.settings_table(generator.ProducerConfig)

    assert "| `slots` | `16` | 1 to 1024 | Topic partitions of the progress topic" in table
    assert "| `kafka_options` | empty | no flag |" in table
    assert "| `project` | **needed** |" in table


def test_writing_again_changes_nothing_and_a_stale_table_is_fixed(generator, tmp_path, capsys):
    text = PAGES["settings.md"]
    page = tmp_path / "settings.md"
    page.write_text(text.replace("| `slots` | `16` |", "| `slots` | `99` |"))
    generator.FOLDER = tmp_path
    generator.main()
    assert page.read_text() == text
    generator.main()
    assert capsys.readouterr().out.splitlines() == [
        "settings.md: written",
        "settings.md: up to date",
    ]


def test_every_error_stands_there_with_its_exit_code():
    known = {
        kind.__name__: str(kind.exit_code)
        for module in map(importlib.import_module, ERRORS)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, TidegateError) and kind is not TidegateError
    }

    assert {name: cells[0] for name, cells in rows("errors.md").items()} == known


def test_every_warning_stands_there():
    sources = [
        path.read_text()
        for folder in ("producer", "spark_consumer", "tidegate/lineage", "tidegate/program")
        for path in (REPOSITORY / folder).rglob("*.py")
    ]
    said = {
        event
        for text in sources
        for event in re.findall(r"\.(?:warning|error|exception|critical)\(\s*\"([^\"]+)\"", text)
    }
    listed = {name: cells[0] for name, cells in rows("log-lines.md").items()}

    assert said
    assert said == {event for event, level in listed.items() if level in ("warning", "error")}
    for event in listed:
        assert any(f'"{event}"' in text for text in sources), event


def test_every_metric_that_is_named_exists(generator):
    tables = generator.TABLES["producer metrics"]() + generator.TABLES["consumer metrics"]()
    known = set(re.findall(r"`(tidegate_\w+)`", tables))

    pages = [page.read_text() for page in DOCS.rglob("*.md")]
    named = re.findall(r"\btidegate_(?:producer|consumer)_\w+", "".join(pages))
    assert set(named) == known
