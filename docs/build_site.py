"""Builds the site of `docs/` into `build/site/`, and fails where it needs a network.

`./dev docs` and `./dev lint` run this.  A link or anchor that leads nowhere fails the build.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
SITE = REPOSITORY / "build" / "site"

_LOADED = re.compile(r"<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=\"((?:https?:)?//[^\"]+)\"")


def foreign_resources(page: str) -> list[str]:
    """Return the scripts, styles, fonts and pictures that a page loads from elsewhere."""
    return _LOADED.findall(page)


def unsearchable(pages: Iterable[str], index: str) -> list[str]:
    """Return the pages that the search index lacks."""
    found = {entry["location"].partition("#")[0] or "index.html" for entry in _entries(index)}
    return sorted(set(pages) - found)


def _entries(index: str) -> list[dict[str, str]]:
    entries: list[dict[str, str]] = json.loads(index)["docs"]
    return entries


def faults(site: Path) -> list[str]:
    """Return what a built site loads from a network, and what its search does not find."""
    pages = {str(path.relative_to(site)): path.read_text() for path in sorted(site.rglob("*.html"))}
    index = (site / "search" / "search_index.json").read_text()
    return [
        *(f"{name} loads {one}" for name, text in pages.items() for one in foreign_resources(text)),
        *(
            f"{name} is not in the search index"
            for name in unsearchable({*pages} - {"404.html"}, index)
        ),
        *(() if (site / "search" / "search_index.js").exists() else ("no index without a server",)),
    ]


def build() -> None:
    """Write the site; a warning of mkdocs, which it prints, ends the program with 1."""
    # Not in every environment.
    from mkdocs.commands.build import build as write  # noqa: PLC0415
    from mkdocs.config import load_config  # noqa: PLC0415

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    config = load_config(str(REPOSITORY / "mkdocs.yml"), strict=True, site_dir=str(SITE))
    config.plugins.on_startup(command="build", dirty=False)
    write(config)
    config.plugins.on_shutdown()


def main() -> int:
    """Build and check the site; the exit code."""
    if any(find_spec(name) is None for name in ("mkdocs", "material", "mkdocstrings")):
        sys.stderr.write("error: mkdocs is not installed: type ./dev setup\n")
        return 2
    # Material prints its maintainers' view of a later mkdocs.
    os.environ["NO_MKDOCS_2_WARNING"] = "1"
    build()
    found = faults(SITE)
    for fault in found:
        sys.stderr.write(f"error: {fault}\n")
    if not found:
        pages = sum(1 for _ in SITE.rglob("*.html"))
        sys.stdout.write(f"site: {pages} pages in {SITE.relative_to(REPOSITORY)}/\n")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
