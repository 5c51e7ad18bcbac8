"""Each link of each page leads to a file and a heading, and so does each page that a source names.

Error hints, log lines, alerts and the dashboard name pages as `docs/….md`, with an anchor where one
section has the answer.
"""

from __future__ import annotations

from tests.tidy.pages import PAGES, REPOSITORY, anchors, broken_links, broken_mentions

SOURCES = tuple(
    path
    for pattern in (
        *("dev", "pyproject.toml", "mkdocs.yml", "deploy/**/*"),
        *(
            f"{folder}/**/*.{suffix}"
            for folder in (
                *("accelerator", "benchmarks", "docker", "docs", "local_stack", "producer"),
                *("schemas", "spark_consumer", "tests", "tidegate"),
            )
            for suffix in ("md", "py")
        ),
        *("README.md", "CONTRIBUTING.md", "SECURITY.md"),
    )
    for path in sorted(REPOSITORY.glob(pattern))
    if path.is_file() and path.suffix not in (".pyc", ".tgz")
)

# Names of pages that do not exist, on purpose; and pages of the simulator, named from its folder.
WITHOUT_MENTIONS = ("tests/tidy/test_pages.py", "tests/tidy/test_printed_commands.py")


def shown(path):
    return str(path.relative_to(REPOSITORY))


def test_each_link_leads_to_a_file_and_a_heading():
    found = {shown(page): broken_links(page, page.read_text()) for page in PAGES}
    assert {page: links for page, links in found.items() if links} == {}


def test_each_page_that_a_text_names_exists():
    found = {
        shown(path): broken_mentions(path.read_text())
        for path in SOURCES
        if shown(path) not in WITHOUT_MENTIONS
    }
    assert {path: pages for path, pages in found.items() if pages} == {}
    assert {"producer/errors.py", "deploy/prometheus/alerts.yaml"} <= set(found)


def test_a_broken_link_or_mention_is_found():
    page = REPOSITORY / "docs" / "reference" / "errors.md"
    text = "[a](nonsense.md) [b](topics.md#no) [c](topics.md#sizes) `[d](x.md)` [e](#nonsense)"

    assert broken_links(page, text) == ["nonsense.md", "topics.md#no", "#nonsense"]
    assert broken_mentions("see docs/nonsense.md and `docs/reference/topics.md#sizes`,") == [
        "docs/nonsense.md"
    ]
    assert broken_mentions("docs/reference/topics.md#nonsense") == [
        "docs/reference/topics.md#nonsense"
    ]


def test_anchors_are_those_of_github():
    assert {"sizes", "kafka-services", "names-of-data-topics"} <= anchors(
        REPOSITORY / "docs" / "reference" / "topics.md"
    )
    assert "tidegate-producer" in anchors(REPOSITORY / "docs" / "reference" / "settings.md")


def test_pages_are_short():
    """A how-to page has one task; the protocol's core is what a reader of Kafka needs."""
    docs = REPOSITORY / "docs"
    words = {page: len(page.read_text().split()) for page in docs.glob("how-to/*.md")}

    assert {shown(page): number for page, number in words.items() if number > 600} == {}
    assert len((docs / "protocol.md").read_text().split()) <= 10_000
