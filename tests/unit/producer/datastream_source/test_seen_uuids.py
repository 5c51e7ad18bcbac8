"""Copies are recognised by their uuid, within bounds."""

import pytest

from tidegate.producer.datastream_source.seen_uuids import SeenUuids


@pytest.mark.rule("datastream-copies-left-out")
def test_the_first_of_a_uuid_is_new_in_whatever_file():
    seen = SeenUuids(10)
    assert seen.add("a", "u1")
    assert not seen.add("a", "u1")
    assert not seen.add("b", "u1")
    assert seen.add("b", "u2")


def test_closed_files_are_forgotten_and_no_other():
    seen = SeenUuids(10)
    seen.add("a", "u1")
    seen.add("b", "u2")
    seen.close(("a", "nothing"))
    assert seen.add("c", "u1")
    assert not seen.add("c", "u2")
    assert seen.forgotten == 0


def test_beyond_the_limit_the_oldest_files_are_forgotten():
    seen = SeenUuids(3)
    for number in range(3):
        seen.add("1", f"u{number}")
    seen.add("2", "u3")
    assert seen.forgotten == 3
    assert not seen.add("2", "u3")
    assert seen.add("3", "u0")
