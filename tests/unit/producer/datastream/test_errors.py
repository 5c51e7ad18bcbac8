"""Each error has a class, says where, and what to do."""

import pytest

from tidegate.producer.datastream import errors
from tidegate.producer.datastream.position import Position

KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type)
    and issubclass(kind, errors.DatastreamError)
    and kind is not errors.DatastreamError
]


def test_there_are_classes():
    assert len(KINDS) == 13


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_names_file_and_record_and_the_fix(kind):
    error = kind.at(Position("a.avro", 3), "something is wrong", found=7)
    assert str(error) == (f"something is wrong (file='a.avro', record=3, found=7). {kind.fix}")
    assert kind.fix
    assert error.exit_code == 2
    assert f"    {'├' if kind.__name__ != 'MissingKeyColumn' else '└'}── {kind.__name__} " in (
        errors.__doc__
    )
