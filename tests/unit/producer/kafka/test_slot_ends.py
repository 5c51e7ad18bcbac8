"""Ends of slots are asked for and delivered without waiting; needs no broker."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException

from tidegate.producer.kafka import admin as kafka_admin
from tidegate.producer.kafka import slot_ends
from tidegate.producer.kafka.slot_ends import SlotEnds

ENDS = {0: 7, 1: 0}


class Admins:
    """Stands for the class of admin clients: remembers what each was asked."""

    def __init__(self):
        self.made = 0
        self.asked = []

    def __call__(self, _config):
        self.made += 1
        return self

    def list_offsets(self, places, *, isolation_level, request_timeout):
        assert isolation_level is IsolationLevel.READ_COMMITTED
        assert request_timeout < slot_ends._AGE_MAX_US / 1e6
        self.asked.append({place: Future() for place in places})
        return self.asked[-1]

    def answer(self, ends):
        """Answer the last question: the next offset by slot; None where it fails."""
        for place, promise in self.asked[-1].items():
            end = ends[place.partition]
            if end is None:
                promise.set_exception(KafkaException(KafkaError(KafkaError._TRANSPORT)))
            else:
                promise.set_result(SimpleNamespace(offset=end))


@pytest.fixture
def admins(monkeypatch):
    made = Admins()
    monkeypatch.setattr(kafka_admin, "AdminClient", made)
    return made


@pytest.fixture
def ends(admins):
    """Those of two slots, asked for at 0."""
    made = SlotEnds(kafka_admin.SharedAdmin({}), topic="p", slots=2)
    assert made.poll(0) is None
    return made


def test_all_slots_are_asked_for_at_once(ends, admins):
    assert [(place.topic, place.partition) for place in admins.asked[0]] == [("p", 0), ("p", 1)]
    assert ends.poll(1) is None
    assert len(admins.asked) == 1


def test_the_answer_is_returned_once(ends, admins):
    admins.answer(ENDS)

    assert ends.poll(1) == ENDS
    assert ends.poll(2) is None
    assert len(admins.asked) == 2


def test_part_of_an_answer_is_not_returned(ends, admins):
    next(iter(admins.asked[0].values())).set_result(SimpleNamespace(offset=1))

    assert ends.poll(1) is None


def test_a_question_that_fails_is_asked_again_with_a_new_client(ends, admins):
    admins.answer({0: 1, 1: None})

    assert ends.poll(1) is None
    assert ends.poll(2) is None
    assert (admins.made, len(admins.asked)) == (2, 2)
    admins.answer(ENDS)
    assert ends.poll(3) == ENDS


def test_a_client_that_does_not_answer_is_dropped(ends, admins):
    assert ends.poll(slot_ends._AGE_MAX_US - 1) is None
    assert (admins.made, len(admins.asked)) == (1, 1)

    assert ends.poll(slot_ends._AGE_MAX_US) is None
    assert ends.poll(slot_ends._AGE_MAX_US) is None
    assert (admins.made, len(admins.asked)) == (2, 2)
