"""Validation: each way the source cannot be read is a clear fault of the settings."""

import pytest

from tidegate.producer.description import GOOGLE_SQL, StreamDescription
from tidegate.producer.errors import PositionExpired, QueryInterrupted, QueryRefused
from tidegate.producer.spanner.validate import validate_stream
from tidegate.schemas.errors import ConfigError, UnreachableError
from tidegate.schemas.tables import Column, ColumnType, TableSchema

TABLE = TableSchema("t", (Column("id", ColumnType("INT64"), 1, key_position=1),))
DESCRIPTION = StreamDescription(
    name="S",
    dialect=GOOGLE_SQL,
    exists=True,
    others=("S",),
    watches_all=True,
    options={"retention_period": "1h"},
    tables=(TABLE,),
)


class Source:
    """A catalogue and a change stream in one, each with an error to raise."""

    def __init__(self, *, catalogue=None, query=None):
        self.errors = {"catalogue": catalogue, "query": query}
        self.asked = []
        self.cancelled = False
        self.received = False

    def describe(self, _stream):
        if self.errors["catalogue"]:
            raise self.errors["catalogue"]
        return DESCRIPTION

    def query(self, **arguments):
        self.asked.append(arguments)
        return self

    async def receive(self):
        if self.errors["query"]:
            raise self.errors["query"]
        assert not self.received, "more was read than the first response"
        self.received = True

    def cancel(self):
        self.cancelled = True


@pytest.fixture
def validate(tasks):
    def run(source, **changes):
        arguments = {"name": "S", "start_ns": 10**13, "now_ns": 10**13, **changes}
        return validate_stream(source, source, run_task=tasks.run, **arguments)

    return run


def test_a_good_source_is_described_after_the_smallest_query(validate):
    source = Source()
    assert validate(source) is DESCRIPTION
    (asked,) = source.asked
    assert asked["token"] == ""
    assert asked["start_ns"] == asked["end_ns"] == 10**13
    assert source.cancelled


def test_a_bad_start_is_found_before_any_query(validate):
    source = Source()
    with pytest.raises(ConfigError, match="start"):
        validate(source, start_ns=0)
    assert source.asked == []


@pytest.mark.parametrize("code", ["UNAVAILABLE", "DEADLINE_EXCEEDED"])
def test_no_answer(code, validate):
    with pytest.raises(UnreachableError, match="does not answer") as caught:
        validate(Source(catalogue=QueryInterrupted("m", code=code)))
    assert caught.value.exit_code == 2
    assert caught.value.hint


@pytest.mark.parametrize("place", ["catalogue", "query"])
def test_a_missing_right_or_database(place, validate):
    error = QueryRefused("could not", hint="Grant it", code="PERMISSION_DENIED", details="EXECUTE")
    with pytest.raises(ConfigError, match=r"EXECUTE.*Grant it") as caught:
        validate(Source(**{place: error}))
    assert caught.value.exit_code == 2


def test_an_instant_out_of_range_says_nothing_about_rights(validate):
    assert validate(Source(query=PositionExpired("m", code="OUT_OF_RANGE"))) is DESCRIPTION
