"""How a mirror is distinguished from its source; whole runs of releases: see test_judge."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate.local_stack.judge.cuts import table_difference

SOURCE = {"Id": ("a", "b"), "N": (1, None)}


@pytest.mark.parametrize(
    ("mirror", "says"),
    [
        ({"Id": ("a", "b"), "N": (1, None)}, ""),
        ({"N": (None, 1), "Id": ("b", "a")}, ""),
        ({}, "has no row"),
        ({"Id": (), "N": ()}, "has no row"),
        ({"Id": ("a",), "N": (1,)}, "1 rows absent"),
        ({"Id": ("a", "b", "c"), "N": (1, None, 2)}, "1 too many"),
        ({"Id": ("a", "b"), "N": (1, 0)}, "1 different"),
        ({"Id": ("a", "a"), "N": (1, 1)}, "2 rows for 1 keys"),
        ({"Id": ("a", "b")}, "has columns"),
        ({"Id": ("a", "b"), "N": (1, None), "M": (1, 1)}, "has columns"),
    ],
)
def test_a_difference_is_named(mirror: Any, says: str):
    found = table_difference("t", mirror=mirror, source=SOURCE, key=["Id"])

    assert says in found
    assert bool(found) == bool(says)


def test_nothing_equals_nothing():
    assert table_difference("t", mirror={}, source={"Id": (), "N": ()}, key=["Id"]) == ""


def test_rows_that_the_source_does_not_have_are_too_many():
    found = table_difference("t", mirror=SOURCE, source={"Id": (), "N": ()}, key=["Id"])

    assert "2 too many" in found
