"""A worker's list of what it retries: each fault once, with how often, bounded."""

from __future__ import annotations

import json

import pytest

from tidegate.producer.retried_faults import RetriedFault, RetriedFaults, faults_of_json


def note(faults, error="QueryInterrupted", subject="t", *, at_us, text="it is away"):
    faults.note(error, subject, text=text, remedy="Wait", at_us=at_us)


@pytest.mark.rule("datastream-retried-errors")
def test_equal_faults_of_an_object_are_one_entry_with_first_and_last_time():
    faults = RetriedFaults()
    note(faults, at_us=5)
    note(faults, subject="u", at_us=6)
    note(faults, at_us=9, text="it is still away")

    assert faults.listed() == (
        RetriedFault("QueryInterrupted", "t", 2, 5, 9, "it is still away", "Wait"),
        RetriedFault("QueryInterrupted", "u", 1, 6, 6, "it is away", "Wait"),
    )


def test_the_list_is_bounded_and_keeps_what_was_seen_last():
    faults = RetriedFaults(entries_max=2)
    for at_us, subject in enumerate(("a", "b", "a", "c")):
        note(faults, subject=subject, at_us=at_us)

    assert [(one.subject, one.count) for one in faults.listed()] == [("c", 1), ("a", 2)]
    assert json.loads(faults.as_json())["dropped"] == 1


def test_a_text_is_bounded():
    faults = RetriedFaults()
    note(faults, at_us=1, text="x" * 10_000)
    assert len(faults.listed()[0].text) == 500


def test_what_was_written_is_read():
    faults = RetriedFaults(entries_max=1)
    note(faults, at_us=1)
    note(faults, subject="größe", at_us=2)
    assert faults_of_json(faults.as_json()) == (faults.listed(), 1)


@pytest.mark.parametrize("text", ["no", "[]", "{}", '{"retried": 1, "dropped": 0}'])
def test_another_text_is_refused(text):
    with pytest.raises((ValueError, KeyError, TypeError)):
        faults_of_json(text)
