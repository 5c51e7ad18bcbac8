"""The line for the byte budget: whose turn it is, and that every reader has its turn."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.producer.core.budget_line import BudgetLine, Request
from tidegate.schemas.errors import InvariantViolation


def admit_all(line):
    admitted = []
    while (request := line.admit()) is not None:
        admitted.append(request)
    return admitted


def ask(line, token, size, *, carried=0):
    request = Request(token, size, carried)
    line.ask(request)
    return request


def hold(line, token, size):
    """Let a reader take and deliver bytes at once."""
    request = ask(line, token, size)
    assert admit_all(line) == [request]


class TestOrder:
    def test_first_come_first_served_within_the_shares(self):
        line = BudgetLine(100)
        hold(line, "busy", 100)
        first, second = ask(line, "a", 60), ask(line, "b", 1)
        line.release([("busy", 50)])
        assert admit_all(line) == []  # the small one does not overtake

        line.release([("busy", 50)])
        assert admit_all(line) == [first, second]

    def test_who_has_more_than_a_share_lets_those_pass_that_have_less(self):
        line = BudgetLine(100)
        hold(line, "busy", 90)
        hold(line, "c", 10)
        more, other = ask(line, "busy", 20), ask(line, "b", 15)
        line.release([("busy", 20)])

        assert admit_all(line) == [other]
        line.release([("busy", 40)])  # what it holds is its share now
        assert admit_all(line) == [more]

    def test_alone_it_may_have_all(self):
        line = BudgetLine(100)
        hold(line, "idle", 1)
        for _ in range(9):
            hold(line, "busy", 11)

        assert line.delivered("busy") == 99 > line.share

    def test_what_a_waiting_reader_holds_counts_for_no_share(self):
        line = BudgetLine(100)
        hold(line, "part", 80)
        hold(line, "c", 20)
        rest, other = ask(line, "part", 10, carried=80), ask(line, "b", 10)
        line.release([("c", 20)])

        assert admit_all(line) == [rest, other]

    def test_an_amount_beyond_the_budget_is_next_after_its_own_commit(self):
        line = BudgetLine(100)
        hold(line, "large", 70)
        hold(line, "c", 30)
        large, small = ask(line, "large", 500), ask(line, "b", 20)
        line.release([("c", 30)])
        assert admit_all(line) == [small]

        ask(line, "c", 20)
        line.release([("large", 70)])
        assert admit_all(line) == []  # nobody passes it now
        line.release([("b", 20)])
        assert admit_all(line) == [large]

    def test_a_withdrawn_request_leaves_nothing(self):
        line = BudgetLine(100)
        hold(line, "busy", 100)
        gone, stays = ask(line, "a", 60), ask(line, "b", 50)
        line.withdraw(gone)
        line.release([("busy", 50)])

        assert admit_all(line) == [stays]
        assert line.delivered("a") == 0

    def test_more_released_than_taken_is_a_bug_even_if_others_hold_it(self):
        line = BudgetLine(100)
        hold(line, "a", 10)
        hold(line, "b", 10)

        with pytest.raises(InvariantViolation):
            line.release([("a", 11)])


TOKENS = ("a", "b", "c", "d")
SIZES = st.integers(1, 60) | st.integers(90, 300)


@st.composite
def steps(draw):
    """Return what happens to a line: (token, size) asks, (token, None) commits."""
    what = st.tuples(st.sampled_from(TOKENS), st.none() | SIZES)
    return draw(st.lists(what, max_size=60))


@given(steps())
def test_whatever_happens_the_bytes_add_up_and_shares_are_kept(events):
    line, held, waits = BudgetLine(100), Counter(), []
    for token, size in events:
        if size is None:
            line.release([(token, held.pop(token, 0))])
        else:
            waits.append(ask(line, token, size))
        before, share = line.waiting, line.share
        while (request := line.admit()) is not None:
            within = [one for one in before if held[one.token] <= share]
            assert request is (within or before)[0]
            assert line.taken <= 100 or sum(held.values()) == 0
            held[request.token] += request.size
            waits.remove(request)
            before, share = line.waiting, line.share
        assert list(line.waiting) == waits
        assert line.taken == sum(held.values())
        assert {token: line.delivered(token) for token in TOKENS} == {t: held[t] for t in TOKENS}
        assert held.total() or not waits  # somebody is served as soon as nothing is held


@given(
    others=st.lists(st.tuples(st.sampled_from(TOKENS[1:]), SIZES), min_size=1, max_size=12),
    busy=st.lists(SIZES, min_size=1, max_size=5),
    commits=st.lists(st.sampled_from(TOKENS), max_size=80),
)
def test_one_that_always_has_more_keeps_nobody_waiting(others, busy, commits):
    """Each other one has its turn after those that asked before it; so has the busy one.

    After its own bytes were committed nobody who asked later is admitted before a request.
    """
    line, held, age = BudgetLine(100), Counter(), Counter()
    sizes, ages = list(busy), {}

    def asks(token, size):
        ages[ask(line, token, size)] = age.total()
        age[token] += 1

    def serve():
        while (request := line.admit()) is not None:
            first_without = next((one for one in before() if not held[one.token]), None)
            if first_without is not None:
                assert ages[request] <= ages[first_without]
            del ages[request]
            held[request.token] += request.size
            if request.token == "a":
                asks("a", sizes[age["a"] % len(sizes)])

    def before():
        return sorted(ages, key=ages.get)

    asks("a", sizes[0])
    for token, size in others:
        asks(token, size)
        serve()
    waiting_others = [one for one in ages if one.token != "a"]
    for token in [*commits, *TOKENS * (2 * len(waiting_others) + 2)]:
        line.release([(token, held.pop(token, 0))])
        serve()

    assert not any(one in ages for one in waiting_others)
