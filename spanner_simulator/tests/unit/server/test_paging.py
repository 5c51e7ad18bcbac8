from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanner_simulator.errors import SpannerError
from spanner_simulator.server.paging import page_of


@given(st.integers(0, 30), st.integers(0, 7))
def test_all_pages_are_the_whole(count: int, size: int) -> None:
    items = list(range(count))
    found: list[int] = []
    token = ""
    while True:
        page, token = page_of(items, size=size, token=token)
        found.extend(page)
        if not token:
            break

    assert found == items


@pytest.mark.parametrize(("size", "token"), [(-1, ""), (1, "x"), (1, "-1"), (1, "9" * 30)])
def test_what_is_no_page_is_refused(size: int, token: str) -> None:
    with pytest.raises(SpannerError):
        page_of([1], size=size, token=token)
