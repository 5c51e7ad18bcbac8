"""A registry that takes its time holds up nobody, and what may pass is asked for again."""

import threading

import pytest

from tidegate.producer.driver.schema_lookups import SchemaLookups
from tidegate.schemas.errors import SchemaNotFound, UnreachableError


class Registry:
    """Answers what a test says, and not before it may."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []
        self.may_answer = threading.Event()

    def __call__(self, schema_id):
        self.asked.append(schema_id)
        assert self.may_answer.wait(60)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def ask(registry, now_s=lambda: 0.0):
    """Return look-ups whose first one is under way, and the pauses that they make."""
    pauses = []
    found = SchemaLookups(registry, clock_s=now_s, sleep=pauses.append)
    assert not found.has_answer(7)
    assert not found.has_answer(7)
    return found, pauses


def finish(found, registry):
    registry.may_answer.set()
    for thread in threading.enumerate():
        if thread.name == "schema-7":
            thread.join(60)
    assert found.has_answer(7)


def test_nobody_waits_for_an_answer_and_it_is_asked_for_once():
    registry = Registry({"type": "record"})
    found, pauses = ask(registry)
    finish(found, registry)
    assert found.schema(7) == found.schema(7) == {"type": "record"}
    assert (registry.asked, pauses) == ([7], [])


def test_what_may_pass_is_asked_for_again_with_growing_pauses():
    registry = Registry(*[UnreachableError("busy")] * 7, {"type": "record"})
    found, pauses = ask(registry)
    finish(found, registry)
    assert found.schema(7) == {"type": "record"}
    assert pauses == [1, 2, 4, 8, 16, 30, 30]


@pytest.mark.parametrize(
    ("error", "asked"), [(UnreachableError("away"), 5), (SchemaNotFound("none"), 1)]
)
def test_what_does_not_pass_is_raised_once_and_asked_for_again_afterwards(error, asked):
    registry, seconds = Registry(error), iter(range(0, 10_000, 60))
    found, _ = ask(registry, now_s=lambda: next(seconds))
    finish(found, registry)
    with pytest.raises(type(error)):
        found.schema(7)
    assert len(registry.asked) == asked
    registry.answers = [{"type": "record"}]
    assert not found.has_answer(7)
    finish(found, registry)
    assert found.schema(7) == {"type": "record"}
