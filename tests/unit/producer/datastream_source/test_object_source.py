"""Which source an object is of, as a position says it."""

import random

import pytest

from tests.datastream_files import backfill, history
from tidegate.producer.datastream.errors import MixedSources
from tidegate.producer.datastream.event import parse_event
from tidegate.producer.datastream.position import Position
from tidegate.producer.datastream_source.object_source import ObjectSource

AT = Position("file", 1)


def change(source, log_file=None):
    (event,) = history(source, random.Random(1), 1)
    if log_file is not None:
        event["source_metadata"]["log_file"] = event["sort_keys"][1] = log_file
    return parse_event(event, AT)


def row(source):
    return parse_event(backfill(source, random.Random(1), 1)[0], AT)


def test_the_first_event_says_the_kind_and_the_first_change_the_log():
    source = ObjectSource("")
    assert source.stored == ""
    assert (source.require(row("mysql")), source.stored) == (True, "mysql/")
    assert not source.require(row("mysql"))
    assert (source.require(change("mysql", "a/b.000001")), source.stored) == (True, "mysql/a/b")
    assert not source.require(change("mysql", "a/b.000002"))
    assert not source.require(row("mysql"))
    for other in (change("mysql", "c.000003"), change("oracle")):
        with pytest.raises(MixedSources):
            source.require(other)
    assert source.stored == "mysql/a/b"


def test_what_a_position_says_holds():
    for stored in ("mysql/", "mysql/bin", "oracle/"):
        source = ObjectSource(stored)
        assert source.stored == stored
        with pytest.raises(MixedSources, match=f"of {stored.partition('/')[0]} and of postgresql"):
            source.require(change("postgresql"))
    with pytest.raises(MixedSources, match="two binary logs"):
        ObjectSource("mysql/bin").require(change("mysql", "other.000001"))


def test_an_event_of_another_source_is_noted_as_nothing():
    # It was published by a version that had forgotten the source.
    source = ObjectSource("mysql/bin")
    assert not source.note(change("oracle"))
    assert not source.note(change("mysql", "other.000001"))
    assert source.stored == "mysql/bin"
