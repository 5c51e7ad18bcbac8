"""Answers hold for some seconds, and very many of them do not stay."""

from __future__ import annotations

from tidegate.producer.translation import fresh_answers
from tidegate.producer.translation.fresh_answers import ANSWER_HOLDS_US, FreshAnswers, monotonic_us


class Clock:
    """Stands still until a test moves it."""

    def __init__(self):
        self.now_us = 7

    def __call__(self):
        return self.now_us


def test_an_answer_holds_for_some_seconds():
    clock = Clock()
    answers = FreshAnswers(clock)
    assert answers.get("a") is None
    answers.add("a", "first")

    clock.now_us += ANSWER_HOLDS_US - 1
    assert (answers.get("a"), answers.get("b")) == ("first", None)
    clock.now_us += 1
    assert answers.get("a") is None

    answers.add("a", "second")
    assert answers.get("a") == "second"


def test_of_very_many_those_that_were_given_last_are_kept(monkeypatch):
    monkeypatch.setattr(fresh_answers, "_ANSWERS_MAX", 2)
    answers = FreshAnswers(Clock())
    for question in ("a", "b", "a", "c"):
        answers.add(question, question)

    assert [answers.get(one) for one in "abc"] == ["a", None, "c"]


def test_the_usual_clock_is_in_microseconds(monkeypatch):
    monkeypatch.setattr(fresh_answers.time, "monotonic_ns", lambda: 5_999)

    assert monotonic_us() == 5
