"""Tickets are handed out once each, at a pace; pauses wait for an order, the last for `finish`."""

from __future__ import annotations

import json
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.local_stack.demo.workload import Pace, Progress, Tickets

NEVER = float("inf")


@given(st.integers(0, 500), st.floats(0, 1_000), st.floats(1, 1_000))
def test_a_rate_keeps_transfers_apart(number: int, last_s: float, rate: float):
    pace = Pace(transfers=501, rate_max=rate)
    due_s = pace.due_s(number, taken_last_s=last_s, continued=0, finishing=False)

    assert due_s == last_s + 1 / rate


def test_no_rate_is_no_wait():
    pace = Pace(transfers=10)

    assert pace.due_s(9, taken_last_s=5.0, continued=0, finishing=False) == 0.0


@pytest.mark.parametrize(
    ("number", "continued", "finishing", "due_s"),
    [
        (2, 0, False, 0.0),
        (3, 0, False, NEVER),
        (3, 1, False, 0.0),
        (5, 1, False, NEVER),
        (5, 2, False, 0.0),
        (5, 0, True, 0.0),
    ],
)
def test_each_pause_waits_for_a_continue(
    number: int, continued: int, finishing: bool, due_s: float
):
    pace = Pace(transfers=10, pauses=(3, 5))
    due = pace.due_s(number, taken_last_s=4.0, continued=continued, finishing=finishing)

    assert due == due_s


@pytest.mark.parametrize(
    ("number", "finishing", "due_s"),
    [(6, False, 0.0), (7, False, 4.1), (9, False, NEVER), (9, True, 0.0)],
)
def test_the_reserve_is_slow_and_its_last_one_waits(number: int, finishing: bool, due_s: float):
    pace = Pace(transfers=10, reserve=3, reserve_rate=10.0)

    assert pace.due_s(number, taken_last_s=4.0, continued=0, finishing=finishing) == due_s


def test_each_number_is_taken_once_by_many_threads():
    tickets = Tickets(Pace(transfers=300))
    taken: list[int] = []

    def take() -> None:
        while (number := tickets.take()) is not None:
            taken.append(number)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert sorted(taken) == list(range(300))


def test_finish_lets_the_last_one_go():
    tickets = Tickets(Pace(transfers=1, reserve=1))
    taken: list[int | None] = []
    thread = threading.Thread(target=lambda: taken.append(tickets.take()))
    thread.start()
    before = list(taken)
    tickets.finishing.set()
    thread.join(30)

    assert (before, taken, tickets.take()) == ([], [0], None)


def test_stop_ends_a_wait_without_a_time_limit():
    tickets = Tickets(Pace(transfers=1, reserve=1))
    tickets.stopped.set()

    assert tickets.take() is None


def test_progress_is_one_json_line():
    progress = Progress()
    progress.committed(commit_us=7, retries=2)
    progress.committed(commit_us=5, retries=0)
    line = progress.line(began=0.0, done=True)

    assert "\n" not in line
    content = json.loads(line)
    assert (content["transfers"], content["retries"], content["last_commit_us"]) == (2, 2, 7)
    assert content["done"] is True
