"""The pages: links, anchors and names that exist, generated tables that are fresh, all on the site.

Error hints, log lines, alerts and the dashboard name pages as `docs/….md`, with an anchor where one
section has the answer.  `./dev lint` builds the site with mkdocs, which checks its navigation and
the links inside it.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import subprocess
import sys
from functools import cache
from types import ModuleType, SimpleNamespace

import yaml

import tidegate
from tests.mutants.mutants import MUTANTS
from tests.tidy.pages import (
    PAGES,
    REPOSITORY,
    anchors,
    broken_links,
    broken_mentions,
    is_missing,
    missing_modules,
    shown,
)
from tidegate.schemas.errors import TidegateError

DOCS = REPOSITORY / "docs"
REFERENCE = {page.name: page.read_text() for page in sorted((DOCS / "reference").glob("*.md"))}
ARCHITECTURE = (DOCS / "architecture.md").read_text()
TESTING = (DOCS / "testing.md").read_text()

DECISIONS = DOCS / "decisions"
DECISION_WORDS_MAX = 900

# Where the errors of the two programs and of what they share are defined.
ERRORS = (
    "tidegate.lineage.errors",
    "tidegate.producer.datastream.errors",
    "tidegate.producer.errors",
    "tidegate.schemas.errors",
    "tidegate.spark_consumer.errors",
)


@cache
def loaded(name: str) -> ModuleType:
    """Return a program of docs/."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@cache
def tracked_texts() -> dict[str, str]:
    """Return the texts of the repository that name pages, by path; without the simulator's."""
    listed = subprocess.run(
        ["git", "ls-files", "*.md", "*.py", "*.toml", "*.yml", "deploy", "dev"],
        cwd=REPOSITORY, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    return {
        name: (REPOSITORY / name).read_text()
        for name in listed
        if not name.startswith("spanner_simulator/") and (REPOSITORY / name).exists()
    }


# ---------------------------------------------------------------- links


def test_each_link_and_each_page_that_a_text_names_exists():
    found = {shown(page): broken_links(page, page.read_text()) for page in PAGES}
    assert {page: links for page, links in found.items() if links} == {}
    # These name pages that do not exist, on purpose.
    without = ("tests/tidy/test_pages.py", "tests/tidy/test_printed_commands.py")
    texts = {name: text for name, text in tracked_texts().items() if name not in without}
    found = {name: broken_mentions(text) for name, text in texts.items()}
    assert {name: pages for name, pages in found.items() if pages} == {}
    assert {"producer/errors.py", "deploy/prometheus/alerts.yaml"} <= set(found)


def test_each_module_that_a_page_names_exists():
    listed = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    tracked = listed.stdout.split()
    # The changelog names modules of earlier versions.
    pages = [page for page in PAGES if page.name != "CHANGELOG.md"]
    found = {shown(page): missing_modules(page.read_text(), tracked) for page in pages}
    assert {page: modules for page, modules in found.items() if modules} == {}
    text = "`core/worker.py`, `core/nonsense.py`, `producer/core/worker.py::Worker` and `worker.py`"
    assert missing_modules(text, tracked) == ["core/nonsense.py"]


def test_a_broken_link_or_mention_is_found():
    page = DOCS / "reference" / "errors.md"
    text = "[a](nonsense.md) [b](topics.md#no) [c](topics.md#sizes) `[d](x.md)` [e](#nonsense)"

    assert broken_links(page, text) == ["nonsense.md", "topics.md#no", "#nonsense"]
    assert broken_mentions("see docs/nonsense.md and `docs/reference/topics.md#sizes`,") == [
        "docs/nonsense.md"
    ]
    assert broken_mentions("docs/reference/topics.md#nonsense") == [
        "docs/reference/topics.md#nonsense"
    ]
    assert {"sizes", "names-of-data-topics"} <= anchors(DOCS / "reference" / "topics.md")


def test_pages_are_short():
    """A how-to page has one task; the protocol's core is what a reader of Kafka needs."""
    limits = dict.fromkeys(DOCS.glob("how-to/*.md"), 600)
    limits |= dict.fromkeys(DECISIONS.glob("*.md"), DECISION_WORDS_MAX)
    limits |= {DOCS / "protocol.md": 10_000, DOCS / "testing.md": 2_500}
    words = {page: len(page.read_text().split()) for page in limits}

    del words[DECISIONS / "index.md"]
    assert {shown(page): n for page, n in words.items() if n > limits[page]} == {}


# ---------------------------------------------------------------- decisions


def test_decisions_are_few_and_whole_and_listed_once():
    subjects = sorted(DECISIONS.glob("*.md"))
    subjects.remove(DECISIONS / "index.md")

    assert len(subjects) <= 40
    parts = ("**Context.**", "**Decision", "**Trade-off.**", "**What would change it.**")
    texts = {page.name: page.read_text() for page in subjects}
    assert [(n, part) for n, text in texts.items() for part in parts if part not in text] == []
    index = (DECISIONS / "index.md").read_text()
    listed = re.findall(r"^- \[[^\]]+\]\(([\w-]+\.md)\):", index, re.MULTILINE)
    assert sorted(listed) == [page.name for page in subjects]
    missing = [
        f"{name}: decisions/{slug}.md"
        for name, text in tracked_texts().items()
        for slug in re.findall(r"decisions/([\w-]+)\.md", text)
        if not (DECISIONS / f"{slug}.md").exists()
    ]
    assert missing == []


# ---------------------------------------------------------------- the site


def test_the_front_page_links_to_each_page_and_that_of_the_api_to_each_name():
    text = (DOCS / "index.md").read_text()
    decisions = {*DECISIONS.glob("*.md")} - {DECISIONS / "index.md"}
    pages = {*DOCS.rglob("*.md")} - {DOCS / "index.md"} - decisions
    names = [str(page.relative_to(DOCS)).removesuffix("index.md") for page in sorted(pages)]
    assert [name for name in names if f"]({name})" not in text] == []
    named = re.findall(r"^::: tidegate\.(\w+)$", REFERENCE["api.md"], re.MULTILINE)
    assert sorted(named) == sorted({*tidegate.__all__} - {"__version__"})


def test_the_site_loads_nothing_and_its_search_finds_all_pages(tmp_path):
    class Loader(yaml.SafeLoader):
        """Reads the file without calling what a tag names."""

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
    config = yaml.load((REPOSITORY / "mkdocs.yml").read_text(), Loader)
    assert config["theme"]["font"] is False
    assert "offline" in config["plugins"]
    assert all((DOCS / script).exists() for script in config["extra"]["polyfills"])

    builder = loaded("build_site")
    assert builder.foreign_resources(
        '<script src="https://a.example/x.js"></script><link rel="stylesheet" href="//b.example/y">'
        '<a href="https://c.example/">c</a><script src="assets/z.js"></script>'
    ) == ["https://a.example/x.js", "//b.example/y"]
    (tmp_path / "search").mkdir()
    index = json.dumps({"docs": [{"location": ""}, {"location": "a.html#b"}]})
    (tmp_path / "search" / "search_index.json").write_text(index)
    for name in ("404.html", "a.html", "c.html", "index.html"):
        (tmp_path / name).touch()
    (tmp_path / "a.html").write_text('<script src="https://a.example/x.js"></script>')
    assert builder.faults(tmp_path) == [
        "a.html loads https://a.example/x.js",
        "c.html is not in the search index",
        "no index without a server",
    ]


def test_without_mkdocs_one_line_says_what_to_type(monkeypatch, capsys):
    monkeypatch.setattr(loaded("build_site"), "find_spec", lambda _: None)

    assert loaded("build_site").main() == 2
    assert capsys.readouterr().err == "error: mkdocs is not installed: type ./dev setup\n"


def test_links_that_leave_the_docs_become_names_of_files():
    page = SimpleNamespace(file=SimpleNamespace(src_uri="how-to/x.md"))
    config = SimpleNamespace(docs_dir=str(DOCS))
    text = (
        "[a](../../deploy/README.md#b) [deploy/README.md](../../deploy/README.md) [c](y.md#d) "
        "[d](../decisions/)"
    )
    assert loaded("site_pages").on_page_markdown(text, page, config, files=None) == (
        "a (`deploy/README.md`) deploy/README.md [c](y.md#d) [d](../decisions/index.md)"
    )


# ---------------------------------------------------------------- architecture and testing


def test_the_table_of_lines_is_about_right():
    generator = loaded("generate_architecture")
    counted, printed = generator.counted(), generator.printed(ARCHITECTURE)

    assert list(printed) == list(counted), "stale: type ./dev docs"
    # Rows are rounded to hundreds; beyond that a fifth may change before they are written again.
    assert {
        name: (lines, counted[name])
        for name, lines in printed.items()
        if abs(lines - counted[name]) > max(150, 0.2 * counted[name])
    } == {}, "stale: type ./dev docs"
    page = generator.generated(ARCHITECTURE.replace("| `schemas/` |", "| `nonsense/` |"))
    assert list(generator.printed(page)) == list(counted)
    assert generator.generated(page) == page


def test_the_map_has_every_room_and_what_it_names_exists():
    section = ARCHITECTURE.partition("## What is where\n")[2].partition("\n## ")[0]
    rows = [
        [re.findall(r"`([^`]+)`", cell) for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line.startswith("| `") and line.count(" | ") == 2
    ]
    mapped = {folder.strip("/"): files for (folder,), _, files in rows}
    rooms = {
        f"{package}/{path.name}"
        for package in ("producer", "spark_consumer", "local_stack")
        for path in (REPOSITORY / package).iterdir()
        if any(path.glob("*.py"))
    }
    assert rooms - mapped.keys() == set(), "add a row to What is where"
    named = {f"{folder}/{name}" for folder, files in mapped.items() for name in (*files, "")}
    named |= {
        *re.findall(
            r"`((?:producer|spark_consumer|schemas|local_stack|tests)/[^`*]+)`", ARCHITECTURE
        )
    }
    assert [name for name in sorted(named) if not (REPOSITORY / name).exists()] == []


def test_every_test_that_the_page_on_testing_or_a_mutant_names_exists():
    named = re.findall(r"`(tests/[^`*…]+)`", TESTING)
    assert len(named) > 10
    assert [one for one in named if is_missing(one)] == []
    folders = ("", "tests/simulation", "tests/integration", "tests/chaos/producer")
    files = re.findall(r"`([\w/]+\.(?:py|txt))`", TESTING)
    assert [
        name
        for name in files
        if not any((REPOSITORY / folder / name).exists() for folder in folders)
    ] == []
    pairs = {(mutant.name, test) for mutant in MUTANTS for test in mutant.tests}
    assert sorted(pair for pair in pairs if is_missing(pair[1])) == []
    groups = [*(REPOSITORY / "tests/mutants").glob("broken_*.py")]
    listed = (REPOSITORY / "tests/mutants/mutants.py").read_text()
    assert [group.stem for group in groups if group.stem not in listed] == []
    groups += (REPOSITORY / "tests/simulation").glob("broken_*.py")
    assert len(groups) > 4
    assert [group.name for group in groups if not group.read_text().startswith('"""')] == []


def test_a_test_that_does_not_exist_is_noticed():
    here = "tests/tidy/test_pages.py"
    assert is_missing("tests/tidy/test_nothing.py")
    assert is_missing(f"{here}::test_nothing")
    assert is_missing(f"{here}::TestNothing")
    assert not is_missing(f"{here}::test_a_test_that_does_not_exist_is_noticed")
    worker = "tests/unit/producer/core/test_worker.py"
    assert is_missing(f"{worker}::TestOpening::test_nothing")


# ---------------------------------------------------------------- reference


def rows(page: str) -> dict[str, list[str]]:
    """Return the rows of all tables of one page, by what the first cell names."""
    found = {}
    for line in REFERENCE[page].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        for name in re.findall(r"`([^`]+)`", cells[0]) if line.startswith("| ") else ():
            found[name] = cells[1:]
    return found


def test_each_generated_table_is_fresh_and_on_one_page():
    generator = loaded("generate_operations")
    stale = [name for name, text in REFERENCE.items() if generator.generated(text) != text]
    assert stale == [], "stale: type ./dev docs"
    tables = re.findall(r"<!-- generated: ([a-z ]+) -->", "".join(REFERENCE.values()))
    assert sorted(tables) == sorted(generator.TABLES)
    table = generator.settings_table(generator.ProducerConfig)
    assert "| `slots` | `16` | 1 to 1024 | Topic partitions of the progress topic" in table
    assert "| `kafka_options` | empty | no flag |" in table
    assert "| `project` | **needed** |" in table


def test_a_stale_table_is_written_once(tmp_path, capsys, monkeypatch):
    generator, text = loaded("generate_operations"), REFERENCE["settings.md"]
    page = tmp_path / "settings.md"
    page.write_text(text.replace("| `slots` | `16` |", "| `slots` | `99` |"))
    monkeypatch.setattr(generator, "FOLDER", tmp_path)
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
    folders = ("producer/", "spark_consumer/", "lineage/", "program/")
    texts = "\n".join(
        text
        for name, text in tracked_texts().items()
        if name.startswith(folders) and name.endswith(".py")
    )
    logged = re.findall(r"\.(?:warning|error|exception|critical)\(\s*\"([^\"]+)\"", texts)
    listed = {name: cells[0] for name, cells in rows("log-lines.md").items()}

    assert logged
    assert {*logged} == {event for event, level in listed.items() if level in ("warning", "error")}
    assert [event for event in listed if f'"{event}"' not in texts] == []


def test_every_metric_that_is_named_exists():
    tables = loaded("generate_operations").TABLES
    known = set(
        re.findall(r"`(tidegate_\w+)`", tables["producer metrics"]() + tables["consumer metrics"]())
    )

    named = re.findall(
        r"\btidegate_(?:producer|consumer)_\w+",
        "".join(page.read_text() for page in DOCS.rglob("*.md")),
    )
    assert {name.removesuffix("_bucket") for name in named} == known
