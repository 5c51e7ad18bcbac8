"""The byte budget: it admits what fits, holds back what does not, and counts what is held."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from tidegate.producer.driver.byte_budget import ByteBudget
from tidegate.schemas.errors import InvariantViolation

WAIT_S = 30


def never():
    return False


class Budget(ByteBudget):
    """A budget whose waiting a test's thread does, too."""

    def __init__(self, bytes_max, *, tasks, **options):
        super().__init__(bytes_max, tasks=tasks, **options)
        self._runner = tasks

    def take_now(self, size, *, token="a", **options):
        return self._runner.run(lambda: self.take(token, size, **options))


@pytest.fixture
def new_budget(tasks):
    return lambda bytes_max, **options: Budget(bytes_max, tasks=tasks, **options)


def taking(budget, size, is_cancelled=never):
    """Take on another thread; return the thread and the list that gets its answer."""
    answers = []
    thread = threading.Thread(
        target=lambda: answers.append(budget.take_now(size, is_cancelled=is_cancelled)),
        daemon=True,
    )
    thread.start()
    return thread, answers


def test_what_fits_is_admitted_at_once(new_budget):
    budget = new_budget(10)

    assert budget.take_now(4, is_cancelled=never)
    assert budget.take_now(6, is_cancelled=never)
    assert budget.taken == 10


def test_what_does_not_fit_waits_for_a_release(new_budget):
    budget = new_budget(10)
    budget.take_now(6, is_cancelled=never)
    thread, answers = taking(budget, 5)
    thread.join(0.05)
    assert not answers

    budget.release([("a", 6)])
    thread.join(WAIT_S)
    assert answers == [True]
    assert budget.taken == 5


def test_an_amount_beyond_the_budget_is_admitted_when_nothing_is_held(new_budget):
    budget = new_budget(10)

    assert budget.take_now(25, is_cancelled=never)
    thread, answers = taking(budget, 1)
    thread.join(0.05)
    assert not answers
    budget.release([("a", 25)])
    thread.join(WAIT_S)
    assert answers == [True]


def test_a_cancelled_reader_takes_nothing(new_budget):
    budget = new_budget(10)
    budget.take_now(10, is_cancelled=never)
    cancelled = threading.Event()
    thread, answers = taking(budget, 1, cancelled.is_set)
    cancelled.set()
    budget.wake()
    thread.join(WAIT_S)

    assert answers == [False]
    assert budget.taken == 10
    assert not new_budget(10).take_now(1, is_cancelled=lambda: True)


def test_waking_disturbs_only_those_that_are_cancelled(new_budget):
    budget, cancelled = new_budget(10), threading.Event()
    budget.take_now(10, is_cancelled=never)
    stays, stays_answers = taking(budget, 1)
    waiting(budget)
    leaves, leaves_answers = taking(budget, 1, cancelled.is_set)
    while len(budget._turns) < 2:
        stays.join(0.001)
    notified = []
    for number, waiter in enumerate(budget._turns.values()):
        changed, waiter.changed = waiter.changed, SimpleNamespace()
        waiter.changed.notify = lambda n=number, c=changed: (notified.append(n), c.notify())
    cancelled.set()
    budget.wake()
    leaves.join(WAIT_S)

    assert notified == [1]
    assert leaves_answers == [False]
    assert not stays_answers
    budget.release([("a", 10)])
    stays.join(WAIT_S)


def test_releasing_more_than_was_taken_is_a_bug(new_budget):
    budget = new_budget(10)
    budget.take_now(3, is_cancelled=never)

    with pytest.raises(InvariantViolation):
        budget.release([("a", 4)])


def waiting(budget):
    """Wait until the budget's line has a reader in it."""
    give_up = threading.Event()
    for _ in range(WAIT_S * 100):
        if budget._turns:
            return
        give_up.wait(0.01)
    pytest.fail("nobody waits")


def test_first_come_first_served_whatever_the_size(new_budget):
    budget = new_budget(10)
    budget.take_now(10, is_cancelled=never)
    large, large_answers = taking(budget, 50)
    waiting(budget)
    small, small_answers = taking(budget, 1)
    small.join(0.05)
    budget.release([("a", 5)])
    large.join(0.05)
    assert not large_answers
    assert not small_answers

    budget.release([("a", 5)])
    large.join(WAIT_S)
    assert large_answers == [True]
    assert budget.taken == 50
    budget.release([("a", 50)])
    small.join(WAIT_S)
    assert small_answers == [True]


def test_readers_that_wait_with_part_of_a_value_do_not_wait_for_each_other(new_budget):
    budget = new_budget(10)
    for _ in range(2):
        assert budget.take_now(5, is_cancelled=never)
    answers = []

    def go_on():
        answers.append(budget.take_now(5, carried=5, is_cancelled=never))

    threads = [threading.Thread(target=go_on, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    waiting(budget)
    while not answers:
        threads[0].join(0.01)
    budget.release([("a", 10)])  # the first one's value is complete, and committed
    for thread in threads:
        thread.join(WAIT_S)

    assert answers == [True, True]
