"""Before a stream is read: faults of the source and of conditions are faults of the settings."""

import time

import grpc
import pytest

from spanner_simulator import Simulator, SimulatorConfig
from tests.unit.producer.spanner.conftest import channels_to
from tidegate.producer.description import GOOGLE_SQL, POSTGRESQL, StreamDescription
from tidegate.producer.errors import PositionExpired, QueryInterrupted, QueryRefused
from tidegate.producer.spanner.catalogue import SpannerCatalogue
from tidegate.producer.spanner.channel import rpc_error
from tidegate.producer.spanner.checks import (
    WHERE_MAX,
    changing_word,
    require_condition,
    validate_stream,
)
from tidegate.producer.spanner.transport.status import CallError
from tidegate.schemas.errors import ConfigError, UnreachableError
from tidegate.schemas.tables import Column, ColumnType, TableSchema

TABLE = TableSchema("t", (Column("id", ColumnType("INT64"), 1, key_position=1),))
DESCRIPTION = StreamDescription(
    name="S", dialect=GOOGLE_SQL, exists=True, others=("S",), watches_all=True,
    options={"retention_period": "1h"}, tables=(TABLE,),
)  # fmt: skip


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
        arguments = {"name": "S", "start_ns": 10**13, "now_ns": lambda: 10**13, **changes}

        def open_stream(described):
            source.opened.append(described.dialect)
            return source

        return validate_stream(source, open_stream, run_task=tasks.run, **arguments)

    return run


def test_a_good_source_is_described_after_the_smallest_query(validate):
    source = Source()
    assert validate(source, start_ns=None) == (DESCRIPTION, source, 10**13)
    assert source.opened == [GOOGLE_SQL]
    (asked,) = source.asked
    assert asked["token"] == ""
    assert asked["start_ns"] == asked["end_ns"] == 10**13
    assert source.cancelled
    # An instant out of range says nothing about rights.
    assert validate(Source(query=PositionExpired("m", code="OUT_OF_RANGE")))[0] is DESCRIPTION


@pytest.mark.rule("spanner-start-in-retention")
def test_a_start_in_the_past_is_asked_for_and_one_in_the_next_minute_is_not(validate):
    for start_ns, asked_ns in ((10**13 - 5, 10**13 - 5), (10**13 + 5, 10**13)):
        source = Source()
        assert validate(source, start_ns=start_ns)[2] == start_ns
        (asked,) = source.asked
        assert asked["start_ns"] == asked["end_ns"] == asked_ns
    source = Source()
    with pytest.raises(ConfigError, match="start"):
        validate(source, start_ns=0)
    assert source.asked == []


@pytest.mark.rule("spanner-start-in-retention")
def test_a_start_that_the_stream_does_not_hold_is_a_fault_of_the_settings(validate):
    expired = PositionExpired(
        "m", hint="accept-gap", code="OUT_OF_RANGE", details="too far", lost_until="2025-01-01T00Z"
    )
    with pytest.raises(ConfigError, match=r"start: .*2025-01-01T00Z.*too far") as caught:
        validate(Source(query=expired), start_ns=10**13 - 1)
    assert "accept-gap" not in str(caught.value)
    assert caught.value.exit_code == 2
    with pytest.raises(ConfigError, match="later than now"):
        validate(Source(), start_ns=2 * 10**13)


@pytest.mark.parametrize("database", ["gs", "pg"])
def test_the_time_is_that_of_the_service(databases, database):
    before_ns = time.time_ns()
    now_ns = SpannerCatalogue(databases[database]).now_ns()  # here it has this host's clock
    assert before_ns // 1_000 * 1_000 <= now_ns <= time.time_ns()


def test_a_service_that_does_not_tell_its_time_is_named(validate):
    error = rpc_error(CallError(grpc.StatusCode.PERMISSION_DENIED, "why"), action="query Spanner")

    def refuse():
        raise error

    with pytest.raises(ConfigError, match=r"PERMISSION_DENIED.*why"):
        validate(Source(), now_ns=refuse)


RETRIED = {"UNAVAILABLE", "DEADLINE_EXCEEDED", "ABORTED", "INTERNAL", "RESOURCE_EXHAUSTED",
           "CANCELLED", "UNKNOWN"}  # fmt: skip


@pytest.mark.parametrize("place", ["catalogue", "query"])
def test_only_what_may_pass_is_left_to_a_supervisor(place, validate):
    for status in [code for code in grpc.StatusCode if code.value[0]]:
        error = rpc_error(CallError(status, "why"), action="query Spanner")
        expected = UnreachableError if status.name in RETRIED else ConfigError
        with pytest.raises(expected, match=rf"{status.name}.*why") as caught:
            validate(Source(**{place: error}))
        assert caught.value.retriable == (status.name in RETRIED)
        assert caught.value.exit_code == (75 if status.name in RETRIED else 2)
        assert caught.value.hint or status.name not in RETRIED
    with pytest.raises(UnreachableError, match="does not answer"):
        validate(Source(**{place: QueryInterrupted("m", code="UNAVAILABLE")}))
    # A session that is gone may be opened again.
    lost = CallError(grpc.StatusCode.NOT_FOUND, "Session not found: projects/p/sessions/s")
    with pytest.raises(UnreachableError, match="Session not found"):
        validate(Source(**{place: rpc_error(lost, action="query Spanner")}))
    error = QueryRefused("could not", hint="Grant it", code="PERMISSION_DENIED", details="EXECUTE")
    with pytest.raises(ConfigError, match=r"EXECUTE.*Grant it"):
        validate(Source(**{place: error}))


DDL = [
    "CREATE TABLE Users (Shop INT64, Id INT64, Note STRING(MAX)) PRIMARY KEY (Shop, Id DESC)",
    "CREATE TABLE Weights (Weight FLOAT64) PRIMARY KEY (Weight)",
    "CREATE CHANGE STREAM Feed FOR ALL",
]
PG_DDL = [
    'CREATE TABLE "Users" ("Id" bigint PRIMARY KEY, "Note" varchar)',
    'CREATE CHANGE STREAM "Feed" FOR ALL',
]


@pytest.fixture(scope="module")
def databases():
    with Simulator(SimulatorConfig()) as simulator:
        simulator.create_database("gs", ddl=DDL)
        simulator.create_database("pg", ddl=PG_DDL, dialect="POSTGRESQL")
        with channels_to(simulator, gs="gs", pg="pg") as opened:
            yield opened


def check(databases, where, *, table="Users", database="gs"):
    require_condition(databases[database], table=table, change_stream="Feed", where=where)


@pytest.mark.parametrize(
    ("database", "where"),
    [
        ("gs", "Id > 5 -- large"),
        ("gs", "Users.Id IN (SELECT Id FROM Users WHERE Shop = 1)"),
        ("gs", "Note = 'CURRENT_DATE'"),
        ("pg", '"Id" > 5 AND "Note" IS NOT NULL'),
        ("pg", "\"Note\" = 'a\\' -- now()"),
    ],
)
def test_a_condition_is_what_could_follow_where(databases, database, where):
    check(databases, where, database=database)


@pytest.mark.parametrize(
    ("database", "where", "message"),
    [
        ("gs", "Nothing > 5", "Unrecognized name: Nothing"),
        ("gs", "Note", "WHERE clause should return type BOOL"),
        ("gs", "Id > 5 /*", "Syntax error"),
        ("gs", "Id > 5) OR (TRUE", "Syntax error"),
        ("gs", "Id > 5 LIMIT 3 --", "Syntax error"),
        ("gs", "Id > @after1", "has the parameter after1"),
        ("gs", "Id > RAND() * 9", "value of RAND changes"),
        ("pg", '"Nothing" > 5', "Nothing"),
        ("pg", '"Id" > 5) OR (TRUE', "yntax error"),
        ("pg", '"Id" > $1', "has the parameter p1"),
        ("pg", '"Id" > 5 AND now() IS NULL', "value of now changes"),
    ],
)
def test_what_spanner_does_not_take_is_named(databases, database, where, message):
    with pytest.raises(ConfigError, match=r"^--where: ") as caught:
        check(databases, where, database=database)
    assert message in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("where", "table", "message"),
    [
        (" ", "Users", "condition has"),
        ("x" * (WHERE_MAX + 1), "Users", "condition has"),
        ("Weight > 1", "Weights", r"the key column Weights\.Weight has the type FLOAT64"),
        ("TRUE", "Missing", "the database has no table Missing"),
    ],
    ids=["empty", "long", "a key of floats", "a missing table"],
)
def test_a_condition_on_what_cannot_be_read_so_is_named(databases, where, table, message):
    with pytest.raises(ConfigError, match=message):
        check(databases, where, table=table)


def test_a_spanner_that_does_not_answer_is_unreachable(channels, spanner):
    spanner.on_sql = lambda _request, context: context.abort(grpc.StatusCode.UNAVAILABLE, "gone")
    with pytest.raises(UnreachableError, match="gone"):
        require_condition(channels, table="Users", change_stream="Feed", where="TRUE")


@pytest.mark.parametrize(
    ("dialect", "where", "word"),
    [
        (GOOGLE_SQL, "At > current_timestamp", "current_timestamp"),
        (GOOGLE_SQL, "At > TIMESTAMP_SUB(CURRENT_TIMESTAMP(), INTERVAL 1 DAY)",
         "CURRENT_TIMESTAMP"),
        (GOOGLE_SQL, "rand > 5 AND `CURRENT_DATE` = 7 # RAND()", ""),
        (GOOGLE_SQL, 'Note = \'it\\\'s now()\' OR Note = """a"rand()"""', ""),
        (GOOGLE_SQL, "Note = '\\\\' AND RAND () > 1", "RAND"),
        (POSTGRESQL, "at > localtimestamp", "localtimestamp"),
        (POSTGRESQL, "note = 'a\\' AND random() > 1", "random"),
        (POSTGRESQL, "note = 'now()''now()' /* now() */", ""),
        # A quote inside of a text ends nothing, so what follows the text is looked at.
        (GOOGLE_SQL, "a = '''x\\'''y''' AND b > RAND() AND a <> '''z'''", "RAND"),
        (GOOGLE_SQL, 'a = """x\\"""y""" AND b > RAND() AND a <> """z"""', "RAND"),
        (GOOGLE_SQL, "a = '''x'y''' AND `b` = '''RAND()'''", ""),
        (POSTGRESQL, "a = E'x\\'y' AND b > now() AND a <> 'z'", "now"),
        (POSTGRESQL, "a = $$it's$$ AND b > now() AND a <> $$it's$$", "now"),
        (POSTGRESQL, "a = $q$it's $$ now()$q$ AND a <> e'\\'now()'", ""),
        # A function can be named in quotes.
        (GOOGLE_SQL, "`ABS`(b) > 1 AND a > `CURRENT_TIMESTAMP` () AND `c` = 1",
         "CURRENT_TIMESTAMP"),
        (POSTGRESQL, '"abs"(b) > 1 AND a > "pg_catalog"."now"() AND "c" = 1', "now"),
        (POSTGRESQL, '"now" > 5 AND "random" IN (1)', ""),
    ],
)  # fmt: skip
def test_a_name_whose_value_changes_is_found_outside_of_quotes(dialect, where, word):
    assert changing_word(where, dialect=dialect) == word
