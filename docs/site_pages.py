"""Hook of the site: links that leave `docs/` become names of files.

The pages are written for the repository, where a link may lead to any file.  The site has the pages
of `docs/` only.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from posixpath import normpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

_LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: Files) -> str:
    """Return the page's text with links that the site can follow."""
    folder = str(PurePosixPath(page.file.src_uri).parent)
    repository = Path(config.docs_dir).parent

    def follow(found: re.Match[str]) -> str:
        path = normpath(f"docs/{folder}/{found['target'].partition('#')[0]}")
        if path == "docs/decisions":
            return f"[{found['text']}]({found['target'].rstrip('/')}/index.md)"
        if path.startswith("docs/") or not (repository / path).exists():
            return found[0]
        return found["text"] if path in found["text"] else f"{found['text']} (`{path}`)"

    return _LINK.sub(follow, markdown)
