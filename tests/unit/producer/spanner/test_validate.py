"""Validation: each way the source cannot be read is a clear fault of the settings."""

import grpc
import pytest

from tidegate.producer.description import GOOGLE_SQL, StreamDescription
from tidegate.producer.errors import PositionExpired, QueryInterrupted, QueryRefused
from tidegate.producer.spanner.channel import rpc_error
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
        self.opened = []
        self.cancelled = False
        self.received = False

    def describe(self, _stream):
        if self.errors["catalogue"]:
            raise self.errors["catalogue"]
        return DESCRIPTION

    def query(self, **arguments):
        self.asked.append(arguments)
        return self

    async def next_size(self):
        if self.errors["query"]:
            raise self.errors["query"]
        assert not self.received, "more was read than the first response"
        self.received = True
        return 1

    def cancel(self):
        self.cancelled = True


@pytest.fixture
def validate(tasks):
    def run(source, **changes):
        arguments = {"name": "S", "start_ns": 10**13, "now_ns": 10**13, **changes}

        def open_stream(described):
            source.opened.append(described.dialect)
            return source

        return validate_stream(source, open_stream, run_task=tasks.run, **arguments)

    return run


def test_a_good_source_is_described_after_the_smallest_query(validate):
    source = Source()
    assert validate(source) == (DESCRIPTION, source)
    assert source.opened == [GOOGLE_SQL]
    (asked,) = source.asked
    assert asked["token"] == ""
    assert asked["start_ns"] == asked["end_ns"] == 10**13
    assert source.cancelled


def test_a_bad_start_is_found_before_any_query(validate):
    source = Source()
    with pytest.raises(ConfigError, match="start"):
        validate(source, start_ns=0)
    assert source.asked == []


@pytest.mark.rule("spanner-start-in-retention")
def test_a_start_in_the_past_is_asked_for_and_one_in_the_next_minute_is_not(validate):
    for start_ns, asked_ns in ((10**13 - 5, 10**13 - 5), (10**13 + 5, 10**13)):
        source = Source()
        validate(source, start_ns=start_ns)
        (asked,) = source.asked
        assert asked["start_ns"] == asked["end_ns"] == asked_ns


@pytest.mark.rule("spanner-start-in-retention")
def test_a_start_that_the_stream_does_not_hold_is_a_fault_of_the_settings(validate):
    """Without an option for retention only Spanner knows what is held, and when it was created."""
    expired = PositionExpired(
        "m", hint="accept-gap", code="OUT_OF_RANGE", details="too far", lost_until="2025-01-01T00Z"
    )
    with pytest.raises(ConfigError, match=r"start: .*2025-01-01T00Z.*too far") as caught:
        validate(Source(query=expired), start_ns=10**13 - 1)
    assert "accept-gap" not in str(caught.value)
    assert caught.value.exit_code == 2
    with pytest.raises(ConfigError, match="later than now"):
        validate(Source(), start_ns=2 * 10**13)


@pytest.mark.parametrize("code", ["UNAVAILABLE", "DEADLINE_EXCEEDED"])
def test_no_answer(code, validate):
    with pytest.raises(UnreachableError, match="does not answer") as caught:
        validate(Source(catalogue=QueryInterrupted("m", code=code)))
    assert caught.value.exit_code == 75
    assert caught.value.hint


class Failed(grpc.RpcError):
    """A call that ended with a status."""

    def __init__(self, code):
        self._code = code

    def code(self):
        return self._code

    def details(self):
        return "why"


RETRIED = {"UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED", "INTERNAL", "RESOURCE_EXHAUSTED",
           "CANCELLED", "UNKNOWN"}  # fmt: skip


@pytest.mark.parametrize("place", ["catalogue", "query"])
@pytest.mark.parametrize("status", [code for code in grpc.StatusCode if code.value[0]],
                         ids=lambda code: code.name)  # fmt: skip
def test_only_what_may_pass_is_left_to_a_supervisor(status, place, validate):
    error = rpc_error(Failed(status), what="query Spanner")
    expected = UnreachableError if status.name in RETRIED else ConfigError
    with pytest.raises(expected, match=rf"{status.name}.*why") as caught:
        validate(Source(**{place: error}))
    assert caught.value.retriable == (status.name in RETRIED)
    assert caught.value.hint or status.name not in RETRIED


def test_a_session_that_is_gone_may_be_opened_again(validate):
    failed = Failed(grpc.StatusCode.NOT_FOUND)
    failed.details = lambda: "Session not found: projects/p/sessions/s"
    with pytest.raises(UnreachableError, match="Session not found"):
        validate(Source(query=rpc_error(failed, what="query Spanner")))


@pytest.mark.parametrize("place", ["catalogue", "query"])
def test_a_missing_right_or_database(place, validate):
    error = QueryRefused("could not", hint="Grant it", code="PERMISSION_DENIED", details="EXECUTE")
    with pytest.raises(ConfigError, match=r"EXECUTE.*Grant it") as caught:
        validate(Source(**{place: error}))
    assert caught.value.exit_code == 2


def test_an_instant_out_of_range_says_nothing_about_rights(validate):
    assert validate(Source(query=PositionExpired("m", code="OUT_OF_RANGE")))[0] is DESCRIPTION
