"""docs/decisions/ is short, listed by subject, and linked to by names that exist."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
DECISIONS = REPOSITORY / "docs" / "decisions"
INDEX = DECISIONS / "index.md"

PAGES_MAX = 40
WORDS_MAX = 900

REFERENCE = re.compile(r"decisions/([\w-]+)\.md")
SIBLING = re.compile(r"\]\(([\w-]+)\.md")


def references_to_missing_pages() -> list[str]:
    """References, in every text of the repository, to a page that does not exist."""
    listed = subprocess.run(
        ["git", "ls-files", "*.md", "*.py", "*.toml", "*.yaml"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    found = []
    for name in listed:
        if name.startswith("spanner_simulator/") or not (REPOSITORY / name).exists():
            continue
        text = (REPOSITORY / name).read_text()
        slugs = REFERENCE.findall(text)
        if name.startswith("docs/decisions/"):
            slugs += SIBLING.findall(text)
        missing = [slug for slug in slugs if not (DECISIONS / f"{slug}.md").exists()]
        found += [f"{name}: decisions/{slug}.md" for slug in missing]
    return found


def test_the_pages_are_few_short_and_whole_and_listed_once():
    pages = sorted(DECISIONS.glob("*.md"))
    subjects = [page for page in pages if page != INDEX]

    assert len(subjects) <= PAGES_MAX
    assert [page.name for page in subjects if len(page.read_text().split()) > WORDS_MAX] == []
    parts = ("**Context.**", "**Decision", "**Trade-off.**", "**What would change it.**")
    texts = {page.name: page.read_text() for page in subjects}
    assert [(n, part) for n, text in texts.items() for part in parts if part not in text] == []
    listed = re.findall(r"^- \[[^\]]+\]\(([\w-]+\.md)\):", INDEX.read_text(), re.MULTILINE)
    assert sorted(listed) == [page.name for page in subjects]


def test_every_reference_to_a_decision_names_a_page():
    assert references_to_missing_pages() == []
