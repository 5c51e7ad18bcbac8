"""The inbox: outputs in order, and a wait that ends with the first of them."""

from __future__ import annotations

import threading
import time

from hypothesis import given
from hypothesis import strategies as some

from tidegate.producer.core.events import QueryEnded, RecordsRead
from tidegate.producer.driver.inbox import Inbox, joined
from tidegate.producer.records import HeartbeatRecord

WAIT_S = 30
FIRST, SECOND = QueryEnded("a", 1), QueryEnded("b", 2)


def records(query_id, *timestamps):
    items = [HeartbeatRecord(timestamp_ns=each) for each in timestamps]
    return RecordsRead(f"t{query_id}", query_id, items, size_bytes=10 * len(items))


def open_inbox(discarded=None):
    return Inbox(discard=[].append if discarded is None else discarded.append)


def test_outputs_come_in_the_order_of_their_delivery():
    inbox = open_inbox()
    inbox.put(FIRST)
    inbox.put(SECOND)

    assert len(inbox) == 2
    assert [inbox.take(), inbox.take()] == [FIRST, SECOND]
    assert inbox.take() is None


def test_an_empty_inbox_is_waited_for_no_longer_than_asked():
    began = time.monotonic()

    assert not open_inbox().wait(0.01)
    assert time.monotonic() - began < WAIT_S


def test_a_delivery_ends_the_wait():
    inbox = open_inbox()
    threading.Timer(0.01, inbox.put, [FIRST]).start()

    assert inbox.wait(WAIT_S)
    assert inbox.take() == FIRST


def test_what_was_joined_and_not_taken_is_not_waited_for():
    inbox = open_inbox()
    inbox.put(FIRST)
    inbox.put(SECOND)
    inbox.take()

    assert inbox.wait(WAIT_S)


def test_what_is_not_taken_before_the_end_is_discarded():
    discarded = []
    inbox = open_inbox(discarded)
    for output in (FIRST, SECOND):
        inbox.put(output)
    assert inbox.take() == FIRST

    inbox.close()
    assert discarded == [SECOND]
    assert inbox.take() is None


def test_what_comes_after_the_end_is_discarded():
    discarded = []
    inbox = open_inbox(discarded)
    inbox.close()
    inbox.put(FIRST)

    assert discarded == [FIRST]
    assert len(inbox) == 0


def test_records_of_one_query_that_wait_are_taken_as_one():
    inbox = open_inbox()
    for output in (records(1, 1, 2), records(2, 1), records(1, 3), records(2, 2)):
        inbox.put(output)

    assert inbox.take() == records(1, 1, 2, 3)
    inbox.put(records(2, 3))
    assert len(inbox) == 2
    assert inbox.take() == records(2, 1, 2)
    assert inbox.take() == records(2, 3)


def test_what_was_joined_is_discarded_whole():
    discarded = []
    inbox = open_inbox(discarded)
    for output in (FIRST, records(1, 1), records(1, 2)):
        inbox.put(output)
    inbox.take()
    inbox.put(SECOND)

    inbox.close()
    assert discarded == [records(1, 1, 2), SECOND]


def test_records_pass_nothing_but_records_of_other_queries():
    table_found = QueryEnded("of any other kind", 9)

    assert joined([records(1, 1), table_found, records(1, 2)]) == [
        records(1, 1), table_found, records(1, 2)
    ]  # fmt: skip


def test_no_output_grows_without_bound():
    sizes = [len(one.items) for one in joined(records(1, each) for each in range(250))]

    assert sizes == [100, 100, 50]


outputs = some.lists(
    some.one_of(
        some.builds(records, some.integers(1, 3), some.integers(0, 9)),
        some.builds(QueryEnded, some.just("t"), some.integers(1, 3)),
    )
)


@given(outputs)
def test_nothing_is_lost_and_the_order_within_a_query_stays(delivered):
    result = joined(delivered)

    for query_id in (1, 2, 3):
        assert _story_of(query_id, result) == _story_of(query_id, delivered)
    assert _bytes(result) == _bytes(delivered)


def _story_of(query_id, outputs):
    """The items of one query and every other output, in order."""
    story = []
    for output in outputs:
        if not isinstance(output, RecordsRead):
            story.append(output)
        elif output.query_id == query_id:
            story += output.items
    return story


def _bytes(outputs):
    return sum(one.size_bytes for one in outputs if isinstance(one, RecordsRead))
