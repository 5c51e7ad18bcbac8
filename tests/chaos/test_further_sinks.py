"""What is compared of the sinks beside changelog and mirror; reading them needs a real run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.chaos.further_sinks import compare_histories, compare_keys, since
from tidegate.local_stack.judge.delta import ReleaseManifest
from tidegate.local_stack.judge.log import LoggedTransaction

A, B, C = b"\x01", b"\x02", b"\x03"
T0 = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        ([A, B], "lacks 03"),
        ([A, B, B, C], "twice"),
        ([A, B, C, b"\x04"], "not released to it"),
        ([B, A, C], "not in commit order"),
    ],
)
def test_keys_that_differ_are_named(found, fault):
    assert compare_keys([A, B, C], [A, B, C]) == []
    (text,) = compare_keys(found, [A, B, C])
    assert fault in text


def version(key, value, begin, end=None):
    moments = [None if one is None else T0 + timedelta(seconds=one) for one in (begin, end)]
    return {
        "id": key, "v": value, "valid_from": moments[0], "valid_to": moments[1],
        "is_current": end is None,
    }  # fmt: skip


def test_a_history_has_the_mirrors_rows_and_versions_of_some_duration():
    mirror = [{"id": 1, "v": "b"}]
    right = [version(1, "a", 0, 1), version(1, "b", 1)]
    assert compare_histories(right, mirror, table="t") == []
    assert compare_histories([version(1, "b", 1, 1), *right], mirror, table="t")
    assert compare_histories([version(1, "a", 0)], mirror, table="t")
    assert compare_histories([*right, version(2, "c", 1)], mirror, table="t")
    assert compare_histories([*right, version(1, "b", 2)], mirror, table="t")


def test_what_a_sink_must_hold_begins_with_its_first_release():
    releases = [ReleaseManifest(n, 10 * n, 10 * n + 10, 1, {}) for n in range(3)]
    committed = [LoggedTransaction(us, "t", "", frozenset(), ()) for us in (5, 10, 11, 25)]
    assert since(0, releases, committed) == (releases, committed)
    assert since(1, releases, committed) == (releases[1:], committed[2:])
    assert since(3, releases, committed) == ([], [])
