"""The error tree: every class in it survives pickling and keeps what it says."""

import importlib
import os
import pickle
import pkgutil

import pytest

import tidegate
from tidegate.schemas.errors import (
    ConfigError,
    ExitCode,
    InvariantViolation,
    SchemaError,
    TidegateError,
    UnreachableError,
    invariant,
)

# Packages with errors of the tree that need no extra to be imported.
for package in ("schemas", "producer", "spark_consumer"):
    importlib.import_module(f"tidegate.{package}")
for found in pkgutil.walk_packages(tidegate.__path__, "tidegate."):
    if found.name.endswith(".errors"):
        importlib.import_module(found.name)


def tree(kind=TidegateError):
    yield kind
    for below in kind.__subclasses__():
        yield from tree(below)


TREE = sorted(set(tree()), key=lambda kind: (kind.__module__, kind.__qualname__))


def made(kind):
    """An error of any class, whatever its own arguments are."""
    error = kind.__new__(kind)
    TidegateError.__init__(error, "what", hint="do this", slot=3, token="k")
    return error


@pytest.mark.parametrize("kind", TREE)
def test_every_error_survives_pickling(kind):
    error = made(kind)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    if kind.__str__ is TidegateError.__str__:
        assert str(again) == "what (slot=3, token='k'). do this"
    assert again.fields == {"slot": 3, "token": "k"}
    assert again.hint == "do this"


@pytest.mark.parametrize("kind", TREE)
def test_every_error_has_an_exit_code_of_the_few(kind):
    assert kind.exit_code in set(ExitCode) - {ExitCode.DONE}
    assert isinstance(kind.retriable, bool)
    assert kind.__doc__


def test_exit_codes():
    assert ConfigError.exit_code == 2
    assert SchemaError.exit_code == 1
    assert InvariantViolation.exit_code == os.EX_SOFTWARE
    assert UnreachableError.exit_code == os.EX_TEMPFAIL
    assert UnreachableError.retriable


@pytest.mark.parametrize("kind", TREE)
def test_starting_again_is_advised_for_what_may_pass_only(kind):
    """A supervisor that stops at 2 must neither give up a retriable error nor repeat a setting."""
    if kind.exit_code == ExitCode.TEMPORARY:
        assert kind.retriable
    assert not (kind.retriable and kind.exit_code == ExitCode.USAGE)


def test_a_message_alone_is_the_sentence():
    assert str(SchemaError("what")) == "what"


def test_an_invariant_that_holds_says_nothing():
    invariant(condition=[1], message="never seen")


def test_a_story_survives_pickling_and_its_last_lines_are_shown():
    error = InvariantViolation("broken", slot=3)
    error.story = tuple(f"line {number}" for number in range(20))
    again = pickle.loads(pickle.dumps(error))

    assert again.story == error.story
    assert str(again).splitlines() == [
        "broken (slot=3)",
        *(f"  line {number}" for number in range(12, 20)),
    ]


def test_a_broken_invariant_names_its_fields():
    with pytest.raises(InvariantViolation, match=r"broken \(slot=3\)"):
        invariant(0, "broken", slot=3)
