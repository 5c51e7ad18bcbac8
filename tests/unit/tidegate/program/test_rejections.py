"""When rejected calls are given up."""

import pytest

from tidegate.program.rejections import Rejections


@pytest.fixture
def now():
    return [1_000.0]


@pytest.fixture
def rejections(now):
    return Rejections(lambda: now[0])


def gives_up(rejections, now, *pauses_s):
    found = [rejections.reject()]
    for pause_s in pauses_s:
        now[0] += pause_s
        found.append(rejections.reject())
    return found


def test_what_was_never_accepted_is_given_up_at_once(rejections, now):
    assert gives_up(rejections, now, 1) == [True, True]


def test_what_was_accepted_before_is_given_up_after_five_minutes_of_attempts(rejections, now):
    rejections.accept()
    assert gives_up(rejections, now, *[30] * 10) == [False] * 10 + [True]


def test_an_accepted_call_ends_an_outage(rejections, now):
    rejections.accept()
    gives_up(rejections, now, *[30] * 9)
    rejections.accept()
    assert gives_up(rejections, now, 30) == [False, False]


def test_rejections_that_are_hours_apart_are_not_one_outage(rejections, now):
    rejections.accept()
    assert gives_up(rejections, now, 3_600, 3_600, 3_600) == [False] * 4
