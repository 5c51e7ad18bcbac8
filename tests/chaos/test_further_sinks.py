"""What is compared of the sinks beside changelog and mirror; reading them needs a real run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.chaos.further_sinks import compare_histories, compare_keys, compare_transactions

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


def transaction(release, *ordinals):
    changes = [{"ordinal": ordinal} for ordinal in ordinals]
    return {"release": release, "first_ordinal": min(ordinals), "changes": changes}


def test_each_change_of_a_release_is_in_one_transaction():
    sizes = {3: 3, 4: 0}
    right = [transaction(3, 2), transaction(3, 0, 1)]
    assert compare_transactions(right, sizes) == []
    for wrong in (
        right[:1],
        [*right, transaction(3, 2)],
        [*right, transaction(4, 0)],
        [*right, transaction(5, 0)],
        [transaction(3, 2), transaction(3, 1, 0)],
    ):
        assert len(compare_transactions(wrong, sizes)) == 1
