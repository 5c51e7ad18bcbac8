"""How a mirror is distinguished from its source; whole runs of releases: see test_judge."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate.local_stack.judge.cuts import compare_cuts, table_difference
from tidegate.local_stack.judge.delta import ManifestTable, ReleaseManifest

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


class Bank:
    """Two tables of one row that counts the seconds; the mirrors' version is their release."""

    def tables(self):
        return ["a", "b"]

    mirror_tables = tables

    def primary_key(self, table: str):
        return ["Id"]

    def read(self, table: str, *, at_us: int | None):
        return {"Id": ("x",), "N": (30 if at_us is None else at_us,)}

    def mirror(self, table: str, *, version: int | None = None):
        return {"Id": ("x",), "N": (30 if version is None else (version + 1) * 10,)}


def compared(*cuts: tuple[int, ...]):
    """Releases that end at 10, 20, 30; each with the release that each mirror stands at."""
    manifests = [
        ReleaseManifest(
            n, n * 10, n * 10 + 10, 1,
            {t: ManifestTable("c", 0, "m", at, at) for t, at in zip("ab", cut, strict=False)},
        )
        for n, cut in enumerate(cuts)
    ]  # fmt: skip
    return compare_cuts(manifests, mirrors=Bank(), source=Bank(), rule=lambda *_: [])


def test_mirrors_of_an_older_release_are_compared_with_the_source_at_its_end():
    found = compared((0, 0), (0, 0), (2, 2))

    assert (found.releases, found.cuts, found.unlike_source, found.behind_us_most) == (3, 2, 0, 10)
    assert found.mirror_equals_source


@pytest.mark.parametrize(
    ("cut", "says"),
    [((0, 1), "stand at releases"), ((2, 2), "stand at release 2"), ((1,), "b has no row")],
)
def test_mirrors_that_are_no_cut_of_a_release_are_named(cut: tuple[int, ...], says: str):
    found = compared((0, 0), cut)

    assert found.unlike_source == 1
    assert any(says in example for example in found.examples)
