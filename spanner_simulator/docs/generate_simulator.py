"""Writes the tables of `simulator.md` that follow from the sources: settings, and control verbs.

They stand between `<!-- generated: NAME -->` and `<!-- end -->`; everything else on the page is
written by hand.  A test fails while the page is stale.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import typer

from spanner_simulator.cli import app
from spanner_simulator.control.verb import Argument, verbs_of
from spanner_simulator.control.verbs import Verbs

PAGE = Path(__file__).with_name("simulator.md")

_BLOCK = re.compile(r"(<!-- generated: ([a-z ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def generated(text: str) -> str:
    """Return the page with fresh generated tables; raises KeyError for an unknown one."""
    return _BLOCK.sub(lambda found: f"{found[1]}{TABLES[found[2]]()}\n{found[3]}", text)


def flags() -> str:
    """Return every flag of the command with its default and meaning."""
    options = typer.main.get_command(app).params
    rows = (
        (f"`{one.opts[0]}`", f"`{one.default}`" if _says_something(one.default) else "", one.help)
        for one in options
        if one.name != "help"
    )
    return _table(("flag", "default", "meaning"), rows)


def verbs() -> str:
    """Return every control verb with its arguments; the needed ones stand out."""
    rows = (
        (
            f"`{verb.method} /{verb.name}`",
            ", ".join(_argument(one) for one in verb.arguments) or "none",
            verb.summary,
        )
        for verb in verbs_of(Verbs).values()
    )
    return _table(("path", "arguments", "what it does"), rows)


def _argument(one: Argument) -> str:
    if one.is_required:
        return f"**`{one.name}`**"
    if not _says_something(one.default):
        return f"`{one.name}`"
    return f"`{one.name}` = {json.dumps(one.default)}"


def _says_something(default: object) -> bool:
    """Whether a default is worth a place: nothing and no are what everybody expects."""
    return default is not None and default is not False


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


TABLES: dict[str, Callable[[], str]] = {"flags": flags, "verbs": verbs}


def main() -> None:
    """Write the page again where it is stale."""
    before = PAGE.read_text(encoding="utf-8")
    after = generated(before)
    if after != before:
        PAGE.write_text(after, encoding="utf-8")
    sys.stdout.write(f"{PAGE.name}: {'up to date' if after == before else 'written'}\n")


if __name__ == "__main__":
    main()
