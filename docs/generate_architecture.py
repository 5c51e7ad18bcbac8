"""Writes the table of lines in `architecture.md`, rounded to hundreds.

`./dev docs` runs this.  A test allows a difference of a fifth, so that not every commit has to.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = REPOSITORY / "docs" / "architecture.md"

# Packages whose folders get a row each.
ROOMS = ("producer", "spark_consumer", "local_stack")

GROUPS = {
    "product": ("schemas", "lineage", "program", *ROOMS),
    "its tests": ("tests",),
    "simulator": ("spanner_simulator/src",),
    "the simulator's tests": ("spanner_simulator/tests",),
}

_BLOCK = re.compile(r"(<!-- generated: lines -->\n).*?(<!-- end -->)", re.DOTALL)
_ROW = re.compile(r"^\| (?P<name>[^|]+) \| (?P<lines>[0-9,]+) \|$", re.MULTILINE)


def counted() -> dict[str, int]:
    """Return the lines of Python of every row, exactly."""
    rows: dict[str, int] = {}
    for group, folders in GROUPS.items():
        rows[f"**{group}**"] = sum(_lines(REPOSITORY / folder, "**/*.py") for folder in folders)
        if group == "product":
            rows |= {name: lines for folder in folders for name, lines in _rooms(folder)}
    return rows


def generated(text: str) -> str:
    """Return the page with the table of today."""
    rows = (f"| {name} | {max(100, round(lines, -2)):,} |" for name, lines in counted().items())
    table = "\n".join(("| folder | lines |", "| --- | --- |", *rows))
    return _BLOCK.sub(lambda found: f"{found[1]}{table}\n{found[2]}", text)


def printed(text: str) -> dict[str, int]:
    """Return the rows of the table as the page has them."""
    block = _BLOCK.search(text)
    rows = _ROW.finditer(block[0] if block else "")
    return {row["name"]: int(row["lines"].replace(",", "")) for row in rows}


def _rooms(folder: str) -> Iterator[tuple[str, int]]:
    top = REPOSITORY / folder
    if folder not in ROOMS:
        yield f"`{folder}/`", _lines(top, "**/*.py")
        return
    yield f"`{folder}/*.py`", _lines(top, "*.py")
    for room in sorted(path for path in top.iterdir() if any(path.glob("*.py"))):
        yield f"`{folder}/{room.name}/`", _lines(room, "**/*.py")


def _lines(folder: Path, pattern: str) -> int:
    return sum(len(path.read_text().splitlines()) for path in folder.glob(pattern))


def main() -> None:
    """Write the page if its table differs."""
    before = PAGE.read_text(encoding="utf-8")
    after = generated(before)
    if after != before:
        PAGE.write_text(after, encoding="utf-8")
    sys.stdout.write(f"{PAGE.name}: {'up to date' if after == before else 'written'}\n")


if __name__ == "__main__":
    main()
