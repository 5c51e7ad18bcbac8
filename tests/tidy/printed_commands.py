"""The code blocks of README and docs: which commands they print, and which of them are to be run.

Every `sh` and `python` block is checked by `test_printed_commands.py` without being run.  A block
below the line `<!-- runs -->` is also run: a `python` block there, a `sh` block by the integration
test that has the programs for it.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

REPOSITORY = Path(__file__).resolve().parents[2]

PAGES = tuple(
    page
    for pattern in ("*.md", "docs/**/*.md", "deploy/**/*.md", "docker/**/*.md")
    for page in sorted(REPOSITORY.glob(pattern))
    if page.name != "CHANGELOG.md"
)

_BLOCK = re.compile(
    r"(?P<runs><!-- runs -->\n)?^(?P<indent> *)```(?P<language>\w+)\n"
    r"(?P<content>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Block:
    """A code block of a page."""

    page: str
    line: int
    language: str
    content: str
    runs: bool

    def commands(self) -> list[list[str]]:
        """Return the words of each command of a `sh` block, comments left out."""
        joined = self.content.replace("\\\n", " ")
        words = (shlex.split(line, comments=True) for line in joined.splitlines())
        return [word for word in words if word]


def blocks_in(text: str, *, page: str) -> list[Block]:
    """Return the code blocks of a page that name a language."""
    return [
        Block(
            page=page,
            line=text.count("\n", 0, found.start()) + 1,
            language=found["language"],
            content=dedent(found["content"]),
            runs=bool(found["runs"]),
        )
        for found in _BLOCK.finditer(text)
    ]


def blocks(language: str) -> list[Block]:
    """Return the code blocks of all pages in one language."""
    return [
        block
        for page in PAGES
        for block in blocks_in(page.read_text(), page=str(page.relative_to(REPOSITORY)))
        if block.language == language
    ]
