from __future__ import annotations

import pytest

from spanner_simulator.core.change_streams.call_syntax import (
    Argument,
    Expression,
    LiteralValue,
    Parameter,
    find_call,
)
from spanner_simulator.core.change_streams.change_stream_call import (
    CallArguments,
    is_change_stream_query,
    parse_call,
    resolve,
)
from spanner_simulator.core.timestamps import format_us
from spanner_simulator.core.values import Dialect, Plain
from spanner_simulator.errors import Code, SpannerError

DAY_US = 86_400_000_000
GOOD = "SELECT ChangeRecord FROM READ_Bank(@start, @end, @token, @heartbeat)"


def call(bank, sql: str = GOOD, *, role: str = "", **parameters: Plain) -> CallArguments:
    bound: dict[str, Plain] = {
        "start": format_us(bank.now_us),
        "end": None,
        "token": None,
        "heartbeat": "1000",
    }
    bound.update(parameters)
    parsed = parse_call(sql, bank.database.catalogue, role=role)
    return resolve(parsed, bound, now_us=bank.now_us)


A = "(@start, @end, @token, @heartbeat)"
NOW = "1970-01-01T00:00:01.000020Z"


@pytest.mark.parametrize(
    "sql",
    [
        GOOD,
        "select * from read_bank ( @START,@end , @token, @heartbeat ) ;",
        "SELECT `ChangeRecord` FROM `READ_Bank`(@start, @end, @token, @heartbeat, NULL)",
        (
            "SELECT * FROM READ_Bank(start_timestamp => @start, end_timestamp => @end,\n"
            "  partition_token => @token, read_options => null,\n"
            "  heartbeat_milliseconds => @heartbeat)"
        ),
        "SELECT ChangeRecord FROM READ_Bank(@start, heartbeat_milliseconds => @heartbeat)",
        "SELECT * FROM READ_Bank(HEARTBEAT_MILLISECONDS => 1000, Start_Timestamp=>@start)",
        f"SELECT ChangeRecord FROM READ_Bank('{NOW}', NULL, NULL, 1000)",
        f"SELECT ChangeRecord FROM READ_Bank(TIMESTAMP '{NOW}', NULL, NULL, 1000)",
        f"SELECT ChangeRecord\n\tFROM READ_Bank /* here */ {A} -- done",
    ],
)
def test_accepted_forms(bank, sql: str) -> None:
    assert is_change_stream_query(sql, "GOOGLE_STANDARD_SQL")
    assert call(bank, sql) == CallArguments(bank.now_us * 1000, None, None, 1_000_000)


LATER = "1970-01-01T00:00:01.000040Z"
P = "($1, $2, $3, $4, null)"


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT * FROM spanner.read_json_bank{P}",
        f'SELECT * FROM "spanner"."read_json_bank"{P}',
        f'SELECT read_json_bank FROM "spanner"."read_json_bank"{P}',
        f'select "read_json_bank" from spanner . READ_JSON_Bank {P} ;',
        f"SELECT * FROM spanner.read_json_bank('{LATER}', NULL, NULL, 1000, NULL) ;",
        (
            "SELECT * FROM spanner.read_json_bank(heartbeat_milliseconds => $4,"
            " start_timestamp => $1)"
        ),
    ],
)
def test_accepted_postgres_forms(postgres_bank, sql: str) -> None:
    bound = {"p1": LATER, "p2": None, "p3": None, "p4": "1000"}
    parsed = parse_call(sql, postgres_bank.database.catalogue, role="")
    assert is_change_stream_query(sql, "POSTGRESQL")
    assert is_change_stream_query(sql)
    assert parsed.function == "read_json_bank"
    assert resolve(parsed, bound, now_us=postgres_bank.now_us) == CallArguments(
        1_000_040_000, None, None, 1_000_000
    )


def test_a_far_end_means_no_end(bank) -> None:
    assert call(bank, end="9999-12-31T23:59:59.999999999Z").end_ns is None
    assert call(bank, end=format_us(bank.now_us)).end_ns == bank.now_us * 1000


def test_a_start_before_the_retention_is_refused_when_the_stream_is_older(bank) -> None:
    start = format_us(bank.now_us)
    bank.tick(7 * DAY_US)
    assert call(bank, start=start).start_ns > 0
    bank.tick(1)
    with pytest.raises(SpannerError, match="too far in the past") as caught:
        call(bank, start=start)
    assert caught.value.code is Code.OUT_OF_RANGE


def test_a_resumed_query_may_have_begun_long_ago_if_it_reads_a_stream_partition(bank) -> None:
    start = format_us(bank.now_us)
    bank.tick(30 * DAY_US)
    parsed = parse_call(GOOD, bank.database.catalogue, role="")
    bound = {"start": start, "end": None, "token": "any", "heartbeat": "1000"}

    resumed = resolve(parsed, bound, now_us=bank.now_us, is_resumed=True)
    assert format_us(resumed.start_ns // 1000) == start
    with pytest.raises(SpannerError, match="too far in the past"):
        resolve(parsed, bound | {"token": None}, now_us=bank.now_us, is_resumed=True)


def test_a_role_needs_both_privileges_and_the_missing_one_is_named(bank) -> None:
    bank.ddl("CREATE ROLE reader")
    for missing, grant in (
        ("SELECT on change stream Bank", "GRANT SELECT ON CHANGE STREAM Bank TO ROLE reader"),
        (
            "EXECUTE on table function READ_Bank",
            "GRANT EXECUTE ON TABLE FUNCTION READ_Bank TO ROLE reader",
        ),
    ):
        with pytest.raises(SpannerError, match=missing) as caught:
            call(bank, role="reader")
        assert caught.value.code is Code.PERMISSION_DENIED
        bank.ddl(grant)
    assert call(bank, role="reader").token is None


def test_a_postgres_role_is_granted_the_function_without_its_schema(postgres_bank) -> None:
    catalogue = postgres_bank.database.catalogue
    catalogue.dialect = "GOOGLE_STANDARD_SQL"
    postgres_bank.ddl("CREATE ROLE reader", "GRANT SELECT ON CHANGE STREAM bank TO ROLE reader")
    catalogue.dialect = "POSTGRESQL"
    sql = "SELECT * FROM spanner.read_json_bank($1)"
    with pytest.raises(SpannerError, match="EXECUTE on table function read_json_bank is missing"):
        parse_call(sql, catalogue, role="reader")
    grant = "GRANT EXECUTE ON FUNCTION spanner.read_json_bank TO reader"
    postgres_bank.database.apply_ddl([grant], now_us=postgres_bank.tick())
    assert parse_call(sql, catalogue, role="reader").function == "read_json_bank"


@pytest.mark.parametrize(
    "heartbeat", ["1_000", "\u0661\u0660\u0660\u0660", "1e3", "1" * 5000, "", True, 1000.0]
)
def test_a_heartbeat_is_read_as_any_other_integer(bank, heartbeat: Plain) -> None:
    with pytest.raises(SpannerError, match="Could not parse") as caught:
        call(bank, heartbeat=heartbeat)
    assert caught.value.code is Code.FAILED_PRECONDITION


GOOGLE: Dialect = "GOOGLE_STANDARD_SQL"
POSTGRES: Dialect = "POSTGRESQL"


def argument(text: str, dialect: Dialect) -> Argument:
    schema = "spanner." if dialect == POSTGRES else ""
    call = find_call(f"SELECT * FROM {schema}read_json_s({text})", dialect)
    assert call is not None
    return call.positional[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("@Token", Parameter("token")),
        ("null", LiteralValue("null", None)),
        ('"a\'b"', LiteralValue("text", "a'b")),
        ("r'a\\n'", LiteralValue("text", "a\\n")),
        ("TIMESTAMP 'x'", LiteralValue("timestamp", "x")),
        ("12", LiteralValue("integer", "12")),
        ("1.5", LiteralValue("float", "1.5")),
        ("1" * 5000, LiteralValue("integer", "1" * 5000)),
        ("['x', 'y']", LiteralValue("array", "[ 'x' , 'y' ]")),
        ("ARRAY<STRING>[]", LiteralValue("array", "ARRAY < STRING > [ ]")),
        ("@a + 1", Expression()),
        *((text, Expression()) for text in ("f(@a, 1)", "-12", "(@a)", "CAST(@a AS INT64)")),
        ("TRUE", Expression()),
    ],
)
def test_arguments(text: str, expected: Argument) -> None:
    assert argument(text, GOOGLE) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$12", Parameter("p12")),
        ("'it''s'", LiteralValue("text", "it's")),
        ("ARRAY['a']", LiteralValue("array", "ARRAY [ 'a' ]")),
        ("$1 + 1", Expression()),
        ("$1::text", Expression()),
        ("now()", Expression()),
    ],
)
def test_arguments_in_postgres(text: str, expected: Argument) -> None:
    assert argument(text, POSTGRES) == expected


def test_names_fold_as_the_dialect_says() -> None:
    google = find_call("SELECT * FROM `READ_Bank`(1)", GOOGLE)
    folded = find_call("SELECT * FROM Spanner.READ_JSON_Bank(1)", POSTGRES)
    quoted = find_call('SELECT * FROM "spanner"."read_json_Bank"(1)', POSTGRES)
    assert google is not None
    assert folded is not None
    assert quoted is not None
    assert (google.function, google.schema, google.at) == ("READ_Bank", None, 14)
    assert (folded.function, folded.schema) == ("read_json_bank", "spanner")
    assert (quoted.function, quoted.schema) == ("read_json_Bank", "spanner")


@pytest.mark.parametrize(
    "sql",
    [
        "",
        "READ_s(1)",
        "SELECT READ_s FROM T",
        "SELECT * FROM READ_s",
        "SELECT * FROM T -- FROM READ_s(1)",
        "SELECT '''FROM READ_s(1)'''",
        "SELECT * FROM ready(1)",
        "SELECT * FROM READ_",
        "FROM FROM . read_",
        "SELECT 'unclosed FROM READ_s(1)",
    ],
)
def test_other_statements_have_no_call(sql: str) -> None:
    assert find_call(sql, GOOGLE) is None
    assert find_call(sql, POSTGRES) is None
