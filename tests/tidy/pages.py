"""The pages of the repository as a reader follows them: their anchors, links and mentions.

Anchors are those that GitHub and the site give a heading.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

_PATTERNS = (
    "*.md",
    *(
        f"{folder}/**/*.md"
        for folder in (
            *("accelerator", "benchmarks/results", "deploy", "docker", "docs"),
            *("requirements", "spanner_simulator/docs"),
        )
    ),
    "spanner_simulator/*.md",
)
PAGES = tuple(sorted({page for pattern in _PATTERNS for page in REPOSITORY.glob(pattern)}))

_MENTION = re.compile(r"(?<![\w/.-])(docs/[\w/-]+\.(?:md|ipynb))(?:#([\w-]+))?")
"""A page that a text names: a hint, a log line, an alert, a comment."""

_MODULE = re.compile(r"`(\w[\w/]*/\w+\.py)(?:::[\w:]+)?`")
"""A module that a page names with its folder."""


def prose(text: str) -> str:
    """Return a page without its blocks of code and its code words, which hold no links."""
    text = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", text)


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors of a page's headings, repeated ones with their number."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    found: Counter[str] = Counter()
    names = set()
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", text, re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        names.add(f"{name}-{found[name]}" if found[name] else name)
        found[name] += 1
    return frozenset(names)


def links(text: str) -> Iterator[str]:
    """Yield the relative links of a page."""
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(text)):
        if not re.match(r"[a-z]+:", target):
            yield target


def broken_links(page: Path, text: str) -> list[str]:
    """Return the links of a page that lead to no file or to no heading."""
    return [link for link in links(text) if _is_broken(page, link)]


def _is_broken(page: Path, link: str) -> bool:
    file, _, anchor = link.partition("#")
    target = (page.parent / file).resolve() if file else page
    if not target.exists():
        return True
    return bool(anchor) and (target.suffix != ".md" or anchor not in anchors(target))


def broken_mentions(text: str) -> list[str]:
    """Return the pages `docs/…`, with their anchors, that a text names and that do not exist."""
    return [
        f"{path}#{anchor}" if anchor else path
        for path, anchor in _MENTION.findall(text)
        if not (REPOSITORY / path).exists() or (anchor and anchor not in anchors(REPOSITORY / path))
    ]


def missing_modules(text: str, tracked: Iterable[str]) -> list[str]:
    """Return the modules that a page names by a path, or by its end, and that do not exist."""
    ends = {path[at:] for path in tracked for at in _starts(path)}
    return [path for path in _MODULE.findall(text) if path not in ends]


def _starts(path: str) -> list[int]:
    return [0, *(found.end() for found in re.finditer("/", path))]


def shown(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


def is_missing(named: str) -> bool:
    """Whether `named`, a path or `path::name`, does not exist."""
    path, *parts = named.split("::")
    place = REPOSITORY / path
    if not place.exists():
        return True
    text = place.read_text() if parts else ""
    for depth, part in enumerate(parts):
        kind = "class" if part[0].isupper() else "def"
        # A function may be named without its class.
        indent = depth * "    " or ("" if kind == "class" else "(?:    )*")
        match = re.search(rf"^{indent}{kind} {part}\b", text, re.MULTILINE)
        if match is None:
            return True
        text = re.split(r"^class ", text[match.end() :], maxsplit=1, flags=re.MULTILINE)[0]
    return False
