"""docs/protocol.md and its annexes as their tests see them: examples, tables, sections.

An example is a JSON block below a comment that names it; it gives inputs and outputs.  A table is
found by the words of its heading row.
"""

from __future__ import annotations

import json
import re
from typing import Any

from tests.tidy.pages import REPOSITORY
from tidegate.schemas.progress import (
    ChildPartition,
    DataTopic,
    PartitionFinished,
    SlotChanges,
    SlotProgress,
    SlotWatermark,
    SlowestToken,
    StreamStarted,
    TokenMove,
    TokenSnapshot,
    TopicOffset,
    TopicTotals,
)

DOCS = REPOSITORY / "docs"

PAGE = "\n".join(
    page.read_text() for page in (DOCS / "protocol.md", *sorted((DOCS / "protocol").glob("*.md")))
)


def example(name: str) -> Any:
    (block,) = re.findall(rf"<!-- example: {name} -->\n```json\n(.*?)```", PAGE, re.DOTALL)
    return json.loads(block)


def table(*heading: str) -> list[list[str]]:
    """Return the rows of the one table whose heading row is `heading`."""
    (rows,) = re.findall(
        rf"^\| {re.escape(' | '.join(heading))} \|\n\| [-| ]+\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE
    )
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in rows.splitlines()]


def code(cell: str) -> list[str]:
    """Return what a cell sets in code type."""
    return re.findall(r"`([^`]*)`", cell)


def section(number: str) -> str:
    """Return the text of a section, where the page only names its annex that of the annex."""
    pattern = rf"^###? {re.escape(number)}\.? .*\n((?:(?!##).*\n)*)"
    return max(re.findall(pattern, PAGE, re.MULTILINE), key=len)


def part(text: str, name: str) -> str:
    """Return what follows the line that names a body, up to the next such line."""
    return re.split(r"^`\w+`:\n", text.partition(f"\n`{name}`:\n")[2], flags=re.MULTILINE)[0]


def described_fields(text: str, heading: str) -> list[str]:
    (rows,) = re.findall(rf"^\| {heading} \| meaning \|\n\|.*\n((?:\|.*\n)+)", text, re.MULTILINE)
    return [name for row in rows.splitlines() for name in code(row.strip("| ").split(" | ")[0])]


def filled(name: str, items: int, token_bytes: int = 1) -> Any:
    """Return a record with so many items in the list that is cut, and something in the others."""
    tokens = [str(number).zfill(token_bytes) for number in range(items)]
    children = tuple(ChildPartition(token, (), 1) for token in tokens)
    totals = (TopicTotals("t", 1, 1, 1, 1),)
    vector = (TopicOffset("t", 0, 1), TopicOffset("t", 1, 1))
    snapshots = tuple(TokenSnapshot(token, 1, (), (), 0) for token in tokens)
    match name:
        case "StreamStarted":
            topics = (DataTopic("t", "id", 1, 1),)
            return StreamStarted("s", "d", 1, None, "g", 1, "id", topics, children, ("f",))
        case "PartitionFinished":
            return PartitionFinished("p", ("q",), 1, 2, children, totals)
        case "SlotProgress":
            return SlotProgress(0, 1, 1, 1, vector, snapshots)
        case "SlotChanges":
            moves = tuple(TokenMove(number, 1) for number in range(items))
            numbers = tuple(range(items))
            return SlotChanges(
                0, 2, 1, 1, 1, vector, SlowestToken("p", 1), 1, snapshots, moves, numbers
            )
        case _:
            return SlotWatermark(0, 1, 1, 1, vector, SlowestToken("p", 1), 1)
