"""Requests for backfills: the newest of each table holds, whatever the topic holds beside them."""

import json

import pytest

from tidegate.producer.backfill.requests import RunState, TableRequest, TableRequests
from tidegate.producer.backfill.table_run import RunPlace, place_of
from tidegate.schemas.errors import SchemaError

REQUEST = TableRequest("Sales.Items", 3, "token", 1_700_000_000_000_000, by="ada", at_us=5)


def test_a_record_holds_a_request():
    stopped = TableRequest("t", 4, "p", 9, RunState.STOPPED, 100, 50, where="Id > 7 -- 'ä'")

    assert [TableRequest.decode(one.encode()) for one in (REQUEST, stopped)] == [REQUEST, stopped]


def test_a_record_of_before_conditions_is_for_all_rows():
    content = json.loads(REQUEST.encode())
    del content["where"]

    assert TableRequest.decode(json.dumps(content).encode()) == REQUEST


def test_what_a_later_version_adds_is_passed_over():
    content = {**json.loads(REQUEST.encode()), "columns": "Id"}

    assert TableRequest.decode(json.dumps(content).encode()) == REQUEST


@pytest.mark.parametrize(
    "value",
    [
        b"", b"[]", b"7", b"{}", b'{"table": "t"}',
        b'{"table": 7, "run": 1, "parent": "p", "start_us": 1}',
        b'{"table": "t", "run": 0, "parent": "p", "start_us": 1}',
        b'{"table": "t", "run": 1, "parent": "p", "start_us": 1, "share": 0}',
        b'{"table": "t", "run": 1, "parent": "p", "start_us": 1, "state": "x"}',
        b'{"table": "t", "run": 1, "parent": "p", "start_us": 1, "where": 7}',
    ],
)  # fmt: skip
def test_another_record_is_refused(value):
    with pytest.raises(SchemaError, match="no request for a backfill"):
        TableRequest.decode(value)


def test_a_run_begins_with_a_wait_at_the_time_that_the_request_names():
    start = REQUEST.start

    assert start.start_ns == 1_700_000_000_000_000_000
    assert [place_of(token) for token in start.tokens] == [RunPlace(3, "Sales.Items")]


def test_a_run_begins_with_its_condition():
    request = TableRequest("t", 4, "p", 9, where="Id > 7")

    assert [place_of(one) for one in request.start.tokens] == [RunPlace(4, "t", where="Id > 7")]


@pytest.mark.parametrize(("share", "pause"), [(20, 400), (50, 100), (99, 1), (1, 9_900)])
def test_a_chunk_is_followed_by_its_share_of_time(share, pause):
    request = TableRequest("t", 1, "p", 1, share=share)

    assert request.pause_ns(100) == pause


def test_the_newest_run_of_a_table_holds():
    requests = TableRequests([REQUEST])
    stopped = TableRequest("Sales.Items", 3, "token", 1, RunState.STOPPED)
    other = TableRequest("t", 4, "token", 2)
    for one in (stopped, other, TableRequest("Sales.Items", 2, "older", 1)):
        requests.add(one)

    assert requests.newest("Sales.Items") is stopped
    assert requests.newest("x") is None
    assert requests.announced_by("token") == (stopped, other)
    assert requests.announced_by("older") == ()
    assert requests.all == [stopped, other]
