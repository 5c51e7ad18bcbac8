from __future__ import annotations

from urllib.parse import quote

import pytest
from google.rpc import error_details_pb2, status_pb2
from hypothesis import given
from hypothesis import strategies as st

from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.server.paging import page_of
from spanner_simulator.server.statuses import sendable, status_message, trailing_metadata


def test_aborted_says_when_to_retry() -> None:
    error = SpannerError(Code.ABORTED, "again", retry_delay_ms=1_503)
    trailers = dict(trailing_metadata(error))
    info = error_details_pb2.RetryInfo.FromString(trailers["google.rpc.retryinfo-bin"])
    assert (info.retry_delay.seconds, info.retry_delay.nanos) == (1, 503_000_000)
    assert status_message(error).details[0].Is(error_details_pb2.RetryInfo.DESCRIPTOR)


@pytest.mark.parametrize(
    ("kind", "package"),
    [
        ("Session", "google.spanner.v1"),
        ("Database", "google.spanner.admin.database.v1"),
        ("Instance", "google.spanner.admin.instance.v1"),
    ],
)
def test_what_is_lost_is_named(kind: str, package: str) -> None:
    trailers = dict(trailing_metadata(SpannerError(Code.NOT_FOUND, f"{kind} not found: a/b")))
    info = error_details_pb2.ResourceInfo.FromString(trailers["google.rpc.resourceinfo-bin"])
    status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
    assert info.resource_type == f"type.googleapis.com/{package}.{kind}"
    assert info.resource_name == "a/b"
    assert status.code == 5


@pytest.mark.parametrize("character", ["a", "%", "\n", "é", "\U0001f600"])
def test_a_long_text_is_cut_to_what_trailers_hold(character: str) -> None:
    error = SpannerError(Code.NOT_FOUND, f"Session not found: {character * 5000}")
    size = sum(len(name) + len(value) * 4 // 3 for name, value in trailing_metadata(error))
    assert size < 7_000
    assert len(quote(sendable(character * 5000))) < 3_100
    assert sendable(character * 80) == character * 80


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
