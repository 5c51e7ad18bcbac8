"""Calls that do not return are given up."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

import pytest

from tidegate.program.calls import CallHangs, asked_wait_s, call_bounded


def test_a_call_is_waited_for_and_given_up_where_it_does_not_return():
    calls, answer = [], threading.Event()
    call_bounded(lambda: calls.append("made"), within_s=60.0)
    assert calls == ["made"]
    with pytest.raises(ZeroDivisionError):
        call_bounded(lambda: 1 / 0, within_s=60.0)
    try:
        with pytest.raises(CallHangs):
            call_bounded(answer.wait, within_s=0.05)
    finally:
        answer.set()  # no thread is left


@pytest.mark.parametrize("zone", ["+99999999", "+99999999999999999999"])
def test_a_retry_after_with_an_impossible_zone_asks_for_nothing(zone):
    header = f"Sun, 06 Nov 1994 08:49:37 {zone}"
    assert asked_wait_s(header, datetime.now(UTC)) == 0.0
