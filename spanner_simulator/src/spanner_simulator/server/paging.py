"""Pages of a list: a page token is the number of items before the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from spanner_simulator.errors import invalid_argument

_PAGE_MAX = 1000

T = TypeVar("T")


def page_of(items: Sequence[T], *, size: int, token: str) -> tuple[Sequence[T], str]:
    """The items of one page and the token of the next, empty at the end.

    Size 0 means the largest.  INVALID_ARGUMENT for a token that no page has returned.
    """
    if size < 0:
        raise invalid_argument("page_size must not be negative.")
    if token and not (token.isascii() and token.isdigit() and len(token) < 19):
        raise invalid_argument(f"Invalid page token: {token}")
    start = int(token or 0)
    end = start + (min(size, _PAGE_MAX) or _PAGE_MAX)
    return items[start:end], str(end) if end < len(items) else ""
