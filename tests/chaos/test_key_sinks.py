"""What is compared of the tables by key; reading them needs a real run."""

from __future__ import annotations

import pytest

from tests.chaos.key_sinks import (
    compare_changelog_by_key,
    compare_mirror_by_key,
    in_order_of_batches,
)

A, B, C = b"\x01", b"\x02", b"\x03"


def change(order_key, key=1):
    return {"key": {"id": key}, "order_key": order_key}


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        ([change(A), change(C)], "lacks 02"),
        ([change(A), change(B), change(C), change(b"\x04")], "nobody made"),
        ([change(A), change(B), change(B), change(C)], "02 2 times"),
        ([change(B), change(A), change(C)], "behind a newer one"),
    ],
)
def test_changes_by_key_that_differ_are_named(rows, fault):
    assert compare_changelog_by_key({"t": [change(C, 2), change(A), change(B)]}, {A, B, C}) == []
    (text,) = compare_changelog_by_key({"t": rows}, {A, B, C})
    assert fault in text


def test_files_are_read_by_batch_and_within_one_by_name():
    files = [[{"batch": 1, "n": 2}], [{"batch": 0, "n": 0}, {"batch": 0, "n": 1}], []]
    files.append([{"batch": 1, "n": 3}])
    assert [one["n"] for one in in_order_of_batches(files)] == [0, 1, 2, 3]


def row(key, value, state="complete"):
    return {"id": key, "v": value, "row_state": state, "order_key": A}


def test_a_mirror_by_key_has_the_mirrors_rows_and_no_key_twice():
    mirror = [{"id": 1, "v": "b"}, {"id": 2, "v": "c"}]
    right = [row(1, "b"), row(2, "c"), row(3, None, "deleted")]

    def compare(*found):
        return compare_mirror_by_key(found, mirror, table="t", key=["id"])

    assert compare(*right) == []
    assert "lacks" in compare(*right[1:])[0]
    assert "unlike" in compare(row(1, "a"), *right[1:])[0]
    assert "unlike" in compare(*right, row(4, "d"))[0]
    assert "2 times" in compare(*right, row(2, None, "deleted"))[0]
