"""The site of the docs has every page and public name, and needs no network.

`./dev lint` builds it; these tests need no mkdocs.
"""

from __future__ import annotations

import importlib.util
import json
import re
from types import SimpleNamespace

import pytest
import yaml

import tidegate
from tests.tidy.pages import REPOSITORY

DOCS = REPOSITORY / "docs"


class Loader(yaml.SafeLoader):
    """Reads the file without calling what a tag names."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)

CONFIG = yaml.load((REPOSITORY / "mkdocs.yml").read_text(), Loader)


def loaded(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def build_site():
    return loaded("build_site")


def pages_of(entry):
    if isinstance(entry, str):
        return [entry]
    parts = entry.values() if isinstance(entry, dict) else entry
    return [page for part in parts for page in pages_of(part)]


def test_each_page_is_in_the_navigation_once():
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    decisions = {page for page in pages if page.startswith("decisions/")} - {"decisions/index.md"}

    assert sorted(pages_of(CONFIG["nav"])) == sorted(pages - decisions)


def test_the_front_page_links_to_each_how_to_and_reference():
    text = (DOCS / "index.md").read_text()
    pages = [page for page in pages_of(CONFIG["nav"]) if not page.startswith("index")]

    assert [one for one in pages if f"]({one.removesuffix('index.md')})" not in text] == []


def test_the_page_of_the_api_has_the_public_names():
    page = (DOCS / "reference/api.md").read_text()
    named = re.findall(r"^::: tidegate\.(\w+)$", page, re.MULTILINE)

    assert sorted(named) == sorted({*tidegate.__all__} - {"__version__"})


def test_nothing_is_loaded_from_elsewhere(build_site):
    theme, extra = CONFIG["theme"], CONFIG["extra"]

    assert theme["font"] is False
    assert "offline" in CONFIG["plugins"]
    assert all((DOCS / script).exists() for script in extra["polyfills"])
    assert build_site.foreign_resources(
        '<script src="https://a.example/x.js"></script><link rel="stylesheet" href="//b.example/y">'
        '<a href="https://c.example/">c</a><script src="assets/z.js"></script>'
    ) == ["https://a.example/x.js", "//b.example/y"]


def test_what_the_search_does_not_find_is_a_fault(build_site, tmp_path):
    index = json.dumps({"docs": [{"location": ""}, {"location": "a.html#b"}]})
    (tmp_path / "search").mkdir()
    (tmp_path / "search" / "search_index.json").write_text(index)
    for name in ("404.html", "a.html", "c.html", "index.html"):
        (tmp_path / name).write_text(
            '<script src="https://a.example/x.js"></script>'[len(name) % 9 :]
        )

    found = build_site.faults(tmp_path)
    assert "c.html is not in the search index" in found
    assert "no index without a server" in found
    assert [one for one in found if "a.html is" in one or "index.html is" in one] == []


def test_without_mkdocs_one_line_says_what_to_type(build_site, monkeypatch, capsys):
    monkeypatch.setattr(build_site, "find_spec", lambda _: None)

    assert build_site.main() == 2
    assert capsys.readouterr().err == "error: mkdocs is not installed: type ./dev setup\n"


def test_links_that_leave_the_docs_become_names_of_files():
    hooks = loaded("site_pages")
    page = SimpleNamespace(file=SimpleNamespace(src_uri="how-to/x.md"))
    config = SimpleNamespace(docs_dir=str(DOCS))
    text = "[a](../../deploy/README.md#b) [deploy/README.md](../../deploy/README.md) [c](y.md#d)"

    assert hooks.on_page_markdown(text, page, config, files=None) == (
        "a (`deploy/README.md`) deploy/README.md [c](y.md#d)"
    )
    assert hooks.on_page_markdown("[d](../decisions/)", page, config, files=None) == (
        "[d](../decisions/index.md)"
    )
