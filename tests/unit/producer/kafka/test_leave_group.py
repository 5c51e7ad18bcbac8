"""A client gives up what it owns before it is closed, and it may do neither."""

from __future__ import annotations

import threading
import time
import weakref

import pytest
from confluent_kafka import KafkaError, KafkaException

from tidegate.producer.kafka import leave_group as module
from tidegate.producer.kafka.leave_group import keep_place, leave_group

FATAL = KafkaException(KafkaError(KafkaError._FATAL))
PATIENCE_S = 60.0


class Client:
    """Owns slots until `polls` polls have passed; notes what is called."""

    def __init__(self, *, polls=0):
        self.polls = polls
        self.calls = []
        self.go_on = threading.Event()
        self.go_on.set()

    def unsubscribe(self):
        self.calls.append("unsubscribe")

    def assignment(self):
        return [0] if self.polls > 0 else []

    def memberid(self):
        return "w-1" if self.polls > 0 else ""

    def consume(self, _count, _timeout_s):
        self.calls.append("consume")
        self.polls -= 1
        return []

    def close(self):
        self.calls.append("close")
        self.go_on.wait(PATIENCE_S)


def test_it_is_closed_once_nothing_is_owned():
    client = Client(polls=2)
    leave_group(client)

    assert client.calls == ["unsubscribe", *["consume"] * 3, "close"]


def test_a_fenced_client_hands_over_what_was_due_and_is_closed():
    client = Client()

    def unsubscribe():
        raise FATAL

    client.unsubscribe = unsubscribe
    leave_group(client)

    assert client.calls == ["consume", "consume", "close"]


def test_a_client_that_keeps_its_slots_is_left_behind_unclosed(monkeypatch):
    monkeypatch.setattr(module, "_UNASSIGN_S", -1.0)
    client = Client(polls=2)
    leave_group(client)

    assert "close" not in client.calls


def test_a_client_that_does_not_close_is_left_behind(monkeypatch):
    monkeypatch.setattr(module, "_CLOSE_S", 0.05)
    client = Client()
    client.go_on.clear()
    leave_group(client)

    assert client.calls[-1] == "close"
    client.go_on.set()


def test_what_a_callback_raises_is_raised_after_closing():
    client = Client(polls=1)

    def consume(_count, _timeout_s):
        message = "not released"
        raise OSError(message)

    client.consume = consume
    with pytest.raises(OSError, match="not released"):
        leave_group(client)
    assert client.calls == ["unsubscribe", "close"]


def test_it_is_closed_once_it_has_left():
    """Its member id says so: the request to leave is out."""
    client = Client()
    ids = ["w-1", "w-1"]
    client.memberid = lambda: ids.pop() if ids else ""
    leave_group(client)

    assert client.calls == ["unsubscribe", *["consume"] * 4, "close"]


def test_a_client_that_does_not_leave_is_closed_all_the_same(monkeypatch):
    monkeypatch.setattr(module, "_LEAVE_S", 0.05)
    client = Client()
    client.memberid = lambda: "w-1"
    leave_group(client)

    assert client.calls[-1] == "close"


def test_a_fenced_client_that_keeps_its_member_id_is_not_waited_for():
    client = Client()

    def unsubscribe():
        raise FATAL

    client.unsubscribe, client.memberid = unsubscribe, lambda: "w-1"
    leave_group(client)

    assert client.calls == ["consume", "consume", "close"]


def test_a_client_that_keeps_its_place_hands_over_what_was_due_and_is_dropped():
    """An answer of the group that no poll has taken would keep its thread busy for good."""
    client = Client()
    held = [client]
    keep_place(held)
    give_up_at = time.monotonic() + PATIENCE_S
    while held and time.monotonic() < give_up_at:
        time.sleep(0.01)

    assert (held, client.calls) == ([], ["consume", "consume"])


@pytest.mark.parametrize("error", [FATAL, RuntimeError("Consumer closed")])
def test_a_client_that_refuses_what_is_due_is_dropped_all_the_same(error):
    client = Client()

    def consume(_count, _timeout_s):
        raise error

    client.consume = consume
    held = [client]
    module._drop(held)

    assert held == []


def test_what_is_dropped_is_referred_to_by_nothing_else():
    """Else it would end somewhere else, or never."""
    held = [Client()]
    dropped = weakref.ref(held[0])
    module._drop(held)

    assert dropped() is None
