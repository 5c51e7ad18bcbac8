"""The inbox: outputs in order, and a wait that ends with the first of them."""

from __future__ import annotations

import threading
import time

from tidegate.producer.core.events import QueryEnded
from tidegate.producer.driver.inbox import Inbox

WAIT_S = 30
FIRST, SECOND = QueryEnded("a", 1), QueryEnded("b", 2)


def open_inbox(discarded=None):
    return Inbox(discard=[].append if discarded is None else discarded.append)


def test_outputs_come_in_the_order_of_their_delivery():
    inbox = open_inbox()
    inbox.put(FIRST)
    inbox.put(SECOND)

    assert len(inbox) == 2
    assert [inbox.take(timeout_s=0), inbox.take(timeout_s=WAIT_S)] == [FIRST, SECOND]
    assert inbox.take(timeout_s=0) is None


def test_an_empty_inbox_is_waited_for_no_longer_than_asked():
    began = time.monotonic()

    assert open_inbox().take(timeout_s=0.01) is None
    assert time.monotonic() - began < WAIT_S


def test_a_delivery_ends_the_wait():
    inbox = open_inbox()
    threading.Timer(0.01, inbox.put, [FIRST]).start()

    assert inbox.take(timeout_s=WAIT_S) == FIRST


def test_what_is_not_taken_before_the_end_is_discarded():
    discarded = []
    inbox = open_inbox(discarded)
    for output in (FIRST, SECOND):
        inbox.put(output)
    assert inbox.take(timeout_s=0) == FIRST

    inbox.close()
    assert discarded == [SECOND]
    assert inbox.take(timeout_s=0) is None


def test_what_comes_after_the_end_is_discarded():
    discarded = []
    inbox = open_inbox(discarded)
    inbox.close()
    inbox.put(FIRST)

    assert discarded == [FIRST]
    assert len(inbox) == 0
