"""What the suite answers with: nothing found is good news only where something was compared."""

from __future__ import annotations

import pytest

from differential.__main__ import _summary
from differential.difference import Difference
from differential.kinds import GOOGLE
from differential.seeds import SeedResult


def result(*, crash: str = "") -> SeedResult:
    return SeedResult("seed 1", GOOGLE, crash=crash)


@pytest.mark.parametrize("as_json", [False, True])
def test_seeds_without_a_difference_are_good_news(*, as_json: bool) -> None:
    assert _summary([result(), result(crash="Socket closed")], as_json=as_json) == 0


@pytest.mark.parametrize("as_json", [False, True])
def test_nothing_compared_is_none(*, as_json: bool) -> None:
    assert _summary([result(crash="Socket closed")] * 2, as_json=as_json) == 1


def test_an_unexplained_difference_is_none() -> None:
    found = result()
    found.unexplained.append(Difference("rows", 0, "", 1, 2))

    assert _summary([found], as_json=False) == 1
