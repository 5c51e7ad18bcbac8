"""A condition is planned by Spanner before a run begins: what it does not take is named."""

import pytest

from spanner_simulator import Simulator, SimulatorConfig
from tidegate.producer.description import GOOGLE_SQL, POSTGRESQL
from tidegate.producer.spanner.channel import SpannerChannels
from tidegate.producer.spanner.condition_check import (
    WHERE_MAX,
    changing_word,
    require_condition,
)
from tidegate.schemas.errors import ConfigError, UnreachableError

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
    """Channels to a database of each dialect."""
    with Simulator(SimulatorConfig()) as simulator:
        simulator.create_database("gs", ddl=DDL)
        simulator.create_database("pg", ddl=PG_DDL, dialect="POSTGRESQL")
        opened = {
            name: SpannerChannels(
                database=f"projects/test-project/instances/test-instance/databases/{name}",
                emulator_host=simulator.grpc_address,
            )
            for name in ("gs", "pg")
        }
        yield opened
        for one in opened.values():
            one.close()


def check(databases, where, *, table="Users", database="gs"):
    require_condition(databases[database], table=table, change_stream="Feed", where=where)


@pytest.mark.parametrize(
    ("database", "where"),
    [
        ("gs", "Id > 5 AND Note LIKE 'a%'"),
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
        ("gs", "Id >", "Syntax error"),
        ("gs", "Id > 5 /*", "Syntax error"),
        ("gs", "Id > 5) OR (TRUE", "Syntax error"),
        ("gs", "Id > 5 ORDER BY Id", "Syntax error"),
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


@pytest.mark.parametrize("where", [" ", "x" * (WHERE_MAX + 1)])
def test_a_condition_has_a_length(databases, where):
    with pytest.raises(ConfigError, match="condition has"):
        check(databases, where)


def test_a_key_behind_which_no_query_continues_is_named(databases):
    with pytest.raises(ConfigError, match=r"the key column Weights\.Weight has the type FLOAT64"):
        check(databases, "Weight > 1", table="Weights")


def test_a_table_that_the_database_does_not_have_is_named(databases):
    with pytest.raises(ConfigError, match="the database has no table Missing"):
        check(databases, "TRUE", table="Missing")


def test_a_spanner_that_does_not_answer_is_unreachable(channels, spanner):
    def answer(_request, context):
        import grpc

        context.abort(grpc.StatusCode.UNAVAILABLE, "gone")

    spanner.on_sql = answer
    with pytest.raises(UnreachableError, match="gone"):
        require_condition(channels, table="Users", change_stream="Feed", where="TRUE")


@pytest.mark.parametrize(
    ("dialect", "where", "word"),
    [
        (GOOGLE_SQL, "At > current_timestamp", "current_timestamp"),
        (
            GOOGLE_SQL,
            "At > TIMESTAMP_SUB(CURRENT_TIMESTAMP(), INTERVAL 1 DAY)",
            "CURRENT_TIMESTAMP",
        ),
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
        (
            GOOGLE_SQL,
            "`ABS`(b) > 1 AND a > `CURRENT_TIMESTAMP` () AND `c` = 1",
            "CURRENT_TIMESTAMP",
        ),
        (POSTGRESQL, '"abs"(b) > 1 AND a > "pg_catalog"."now"() AND "c" = 1', "now"),
        (POSTGRESQL, '"now" > 5 AND "random" IN (1)', ""),
    ],
)
def test_a_name_whose_value_changes_is_found_outside_of_quotes(dialect, where, word):
    assert changing_word(where, dialect=dialect) == word
