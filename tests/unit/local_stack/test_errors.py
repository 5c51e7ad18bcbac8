"""The branch of the error tree: exit codes, and the way through a pickle."""

from __future__ import annotations

import pickle

import pytest

from tidegate.local_stack import errors
from tidegate.local_stack.errors import LocalStackError
from tidegate.schemas.errors import TidegateError

OPERATORS = {"JavaMissingError", "JavaUnsupportedError", "PortTakenError"}


@pytest.mark.parametrize("name", errors.__all__)
def test_exit_code(name):
    assert (2 if name in OPERATORS else 1) == getattr(errors, name).exit_code


@pytest.mark.parametrize("name", errors.__all__)
def test_it_survives_pickling(name):
    error = getattr(errors, name)("what", hint="do this", where=3)
    copy = pickle.loads(pickle.dumps(error))

    assert (type(error), str(error)) == (type(copy), str(copy))
    assert isinstance(copy, TidegateError)


def test_failed_parts_are_the_stacks_own_errors():
    assert issubclass(errors.PartFailedError, LocalStackError)
    assert issubclass(errors.FetchError, LocalStackError)
