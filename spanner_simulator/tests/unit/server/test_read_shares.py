from __future__ import annotations

from types import SimpleNamespace

import pytest
from google.cloud.spanner_v1 import types as spanner
from hypothesis import given
from hypothesis import strategies as st

from spanner_simulator.core.values import Plain
from spanner_simulator.errors import SpannerError
from spanner_simulator.server.read_shares import Share, share_count, share_of
from spanner_simulator.server.transaction_selection import Selected


@given(st.integers(0, 40), st.integers(1, 9))
def test_the_shares_are_the_whole_and_do_not_overlap(rows: int, count: int) -> None:
    whole: list[list[Plain]] = [[str(row)] for row in range(rows)]
    parts = [Share("read", 1, b"t", index, count).of(whole) for index in range(count)]
    assert [row for part in parts for row in part] == whole


def test_a_share_belongs_to_one_request_and_one_transaction() -> None:
    share = Share("read", 1, b"t", 0, 4)
    for kind, digest in (("read", 2), ("query", 1)):
        with pytest.raises(SpannerError, match="different request"):
            Share.parse(share.token(), kind, digest)
    with pytest.raises(SpannerError, match="different transaction"):
        share.check_transaction(Selected(None, 1))


def test_data_boost_reads_shares_only() -> None:
    share = Share("read", 1, b"t", 0, 4)
    selected = Selected(SimpleNamespace(transaction_id=b"t"), 1)
    request = spanner.ReadRequest.pb()(partition_token=share.token(), data_boost_enabled=True)
    assert share_of(request, "read", 1, selected) == share
    request.partition_token = b""
    with pytest.raises(SpannerError, match=r"INVALID_ARGUMENT: data_boost_enabled needs"):
        share_of(request, "read", 1, selected)


@pytest.mark.parametrize(
    ("options", "rows", "size", "count"),
    [
        ({}, 100, 1000, 4),
        ({}, 2, 1000, 2),
        ({}, 0, 0, 1),
        ({"max_partitions": 3}, 100, 1000, 3),
        ({"partition_size_bytes": 10}, 100, 95, 10),
        ({"partition_size_bytes": 1}, 10_000, 100_000, 200),
    ],
)
def test_how_many_shares(options, rows: int, size: int, count: int) -> None:
    message = spanner.PartitionOptions.pb()(**options)
    assert share_count(message, rows=rows, size=size) == count
