from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest

from spanner_simulator.control.verb import action, question, verbs_of
from spanner_simulator.errors import Code, SpannerError


class Shop:
    @question(first="from")
    def list_of_goods(self, shelf: str, *, first: int = 0, cheap: bool = False) -> list[str]:
        """What there is.

        In detail.
        """
        return []

    @action
    def buy(
        self,
        *,
        how: Literal["cash", "card"],
        price: float | None = None,
        names: list[str] | None = None,
        weights: dict[str, float] | None = None,
        anything: list[Any] | None = None,
    ) -> dict[str, Any]:
        """Take
        something.
        """
        return {}

    def no_verb(self, act: Callable[[], None]) -> None:
        """Not for everybody."""


VERBS = verbs_of(Shop)


def test_arguments_come_from_the_signature() -> None:
    assert [
        (one.name, one.keyword, one.is_required, one.type_name)
        for verb in (VERBS["list-of-goods"], VERBS["buy"])
        for one in verb.arguments
    ] == [
        ("shelf", "shelf", True, "a string"),
        ("from", "first", False, "a whole number"),
        ("cheap", "cheap", False, "true or false"),
        ("how", "how", True, "one of cash, card"),
        ("price", "price", False, "a number"),
        ("names", "names", False, "a list, each a string"),
        ("weights", "weights", False, "an object, each a number"),
        ("anything", "anything", False, "a list, each a value"),
    ]


def test_json_is_checked_by_type() -> None:
    given = {
        "how": "card",
        "price": 1,
        "names": ["a"],
        "weights": {"a": 0.5},
        "anything": [None, {"a": [1]}],
    }
    assert VERBS["buy"].read(given, is_text=False) == given
    nulls = {"how": "cash", "price": None, "names": None}
    assert VERBS["buy"].read(nulls, is_text=False) == nulls


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "The argument how is missing (one of cash, card)."),
        ({"how": "gold"}, "The argument how must be one of cash, card, not 'gold'."),
        ({"price": "1"}, "The argument price must be a number, not '1'."),
        ({"names": [1]}, "The argument names must be a list, each a string, not [1]."),
        (
            {"weights": {"a": "b"}},
            "The argument weights must be an object, each a number, not {'a': 'b'}.",
        ),
        (
            {"bogus": 1},
            "buy has no argument bogus; its arguments: how, price, names, weights, anything.",
        ),
    ],
)
def test_refusals_name_the_argument(given: dict[str, Any], message: str) -> None:
    with pytest.raises(SpannerError) as refused:
        VERBS["buy"].read({"how": "card", **given} if given else {}, is_text=False)
    assert (refused.value.code, refused.value.message) == (Code.INVALID_ARGUMENT, message)
