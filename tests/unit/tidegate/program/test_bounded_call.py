"""A call that does not return is given up, and everything else comes through."""

from __future__ import annotations

import threading

import pytest

from tidegate.program.bounded_call import CallHangs, call_bounded

SOON_S = 0.05
LONG_S = 60.0


@pytest.fixture
def answer():
    """What a call waits for; it is given at the end, so that no thread is left."""
    made = threading.Event()
    yield made
    made.set()


def test_a_call_that_returns_is_waited_for():
    calls = []
    call_bounded(lambda: calls.append("made"), within_s=LONG_S)

    assert calls == ["made"]


def test_what_the_call_raises_is_raised():
    def fail():
        message = "no"
        raise OSError(message)

    with pytest.raises(OSError, match="no"):
        call_bounded(fail, within_s=LONG_S)


def test_a_call_that_does_not_return_is_given_up(answer):
    with pytest.raises(CallHangs):
        call_bounded(answer.wait, within_s=SOON_S)
