# ruff: noqa: E501  # texts are quoted as the service prints them
"""The service's refusals of change stream queries, code and text, in the order of its checks."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from spanner_simulator.core.change_streams import query_errors
from spanner_simulator.core.change_streams.change_stream_call import (
    check_partition,
    parse_call,
    resolve,
)
from spanner_simulator.core.timestamps import format_us
from spanner_simulator.core.values import Plain
from spanner_simulator.errors import Code, SpannerError

GOOD = "SELECT ChangeRecord FROM READ_SA(@start, @end, @token, @heartbeat)"
POSTGRES = 'SELECT * FROM "spanner"."read_json_sa"($1, $2, $3, $4, null)'
INVALID, RANGE, UNIMPLEMENTED = Code.INVALID_ARGUMENT, Code.OUT_OF_RANGE, Code.UNIMPLEMENTED
NOW = "1970-01-01T00:00:01.000040Z"
COMBINED = (
    "Change stream TVF must not be combined with any other SQL statements. Change stream records "
    "should be read using `SELECT ChangeRecord FROM READ_SA(<args>)`."
)
COMBINED_POSTGRES = (
    "Change stream TVF must not be combined with any other SQL statements. Change stream records "
    'should be read using `select * from "spanner"."read_json_sa"(<args>)`.'
)
LITERAL = (
    "Invalid argument of change stream TVF READ_SA. Argument {} is not a literal or parameter. "
    "Implicit type conversions are not supported."
)
SIGNATURE = (
    "Supported signature: READ_SA([TIMESTAMP], [TIMESTAMP], [STRING], [INT64], [ARRAY<STRING>]) "
    "[at 1:26]\n"
)


def prepare(bank, *, mutable: bool = False) -> None:
    mode = " OPTIONS (partition_mode = 'MUTABLE_KEY_RANGE')" if mutable else ""
    name = "sa" if bank.database.catalogue.dialect == "POSTGRESQL" else "SA"
    bank.now_us = 1_000_020
    bank.ddl(f"CREATE CHANGE STREAM {name} FOR Accounts{mode}")
    bank.now_us = 1_000_040


def ask(
    bank, sql: str, types: Mapping[str, str] | None = None, **parameters: Plain
) -> tuple[Code, str]:
    """A query as the server checks it, but for its transaction; the refusal."""
    given: dict[str, Plain] = {"start": NOW, "end": None, "token": None, "heartbeat": "1000"}
    given.update(parameters)
    bound = {**given, **dict(zip(("p1", "p2", "p3", "p4"), given.values(), strict=False))}

    def check() -> None:
        call = parse_call(sql, bank.database.catalogue, role="", types=types)
        arguments = resolve(call, bound, now_us=bank.now_us)
        check_partition(
            call.stream,
            bank.database.streams.state(call.stream.name).partitions,
            str(arguments.token),
            start_ns=arguments.start_ns,
            now_us=bank.now_us,
        )

    with pytest.raises(SpannerError) as caught:
        check()
    return caught.value.code, caught.value.message


def marked(sql: str, column: int) -> str:
    return f"{sql}\n{' ' * (column - 1)}^"


SHAPES = [
    GOOD + " AS c",
    GOOD + " c",
    GOOD + " WHERE TRUE",
    GOOD + " LIMIT 1",
    GOOD + " ORDER BY 1",
    GOOD + ", T",
    GOOD + " JOIN T ON TRUE",
    "SELECT ChangeRecord FROM T JOIN READ_SA(@start, @end, @token, @heartbeat)",
    GOOD + " UNION ALL " + GOOD,
    f"SELECT * FROM ({GOOD})",
    "WITH q AS (SELECT 1) " + GOOD,
    GOOD.replace("ChangeRecord", "ChangeRecord, 1"),
    GOOD.replace("ChangeRecord", "1"),
    GOOD.replace("ChangeRecord", "ChangeRecord AS x"),
    GOOD.replace("ChangeRecord", "changerecord"),
    GOOD.replace("ChangeRecord", "c.ChangeRecord"),
    GOOD.replace("ChangeRecord", "DISTINCT ChangeRecord"),
]


@pytest.mark.parametrize("sql", SHAPES)
def test_nothing_may_be_combined_with_the_function(bank, sql: str) -> None:
    prepare(bank)

    assert ask(bank, sql) == (UNIMPLEMENTED, COMBINED)


@pytest.mark.parametrize(
    "sql",
    [
        POSTGRES + " AS c",
        POSTGRES + " WHERE true",
        POSTGRES + " LIMIT 1",
        POSTGRES.replace("*", "1"),
        POSTGRES.replace("*", "read_json_sa AS x"),
        POSTGRES.replace("*", "x.*") + " x",
    ],
)
def test_nothing_may_be_combined_with_the_postgres_function(postgres_bank, sql: str) -> None:
    prepare(postgres_bank)

    assert ask(postgres_bank, sql) == (UNIMPLEMENTED, COMBINED_POSTGRES)


TEXTS = {
    "unknown stream": (
        {"sql": "SELECT ChangeRecord FROM READ_NOPE(@a)"},
        INVALID,
        "Table-valued function not found: READ_NOPE [at 1:26]\n"
        + marked("SELECT ChangeRecord FROM READ_NOPE(@a)", 26),
    ),
    "unknown stream on another line": (
        {"sql": "SELECT ChangeRecord\n FROM `READ_NOPE`(@a)"},
        INVALID,
        "Table-valued function not found: READ_NOPE [at 2:7]\n"
        + marked(" FROM `READ_NOPE`(@a)", 7),
    ),
    "unknown column": (
        {"sql": GOOD.replace("ChangeRecord", "x")},
        INVALID,
        "Unrecognized name: x [at 1:8]\n" + marked(GOOD.replace("ChangeRecord", "x"), 8),
    ),
    "expression": ({"sql": GOOD.replace("@start", "@start + 1")}, INVALID, LITERAL.format(0)),
    "function": ({"sql": GOOD.replace("@start", "NOW()")}, INVALID, LITERAL.format(0)),
    "later expression": (
        {"sql": GOOD.replace("@heartbeat", "@heartbeat+1")},
        INVALID,
        LITERAL.format(3),
    ),
    "parameter to be converted": (
        {"sql": GOOD, "types": {"start": "STRING"}},
        INVALID,
        LITERAL.format(0),
    ),
    "parameter of a wrong type": (
        {"sql": GOOD, "types": {"heartbeat": "STRING"}},
        INVALID,
        "No matching signature for READ_SA for argument types: TIMESTAMP, TIMESTAMP, STRING, "
        "STRING, ARRAY<STRING>. " + SIGNATURE + marked(GOOD, 26),
    ),
    "literal of a wrong type": (
        {"sql": GOOD.replace("@token", "5")},
        INVALID,
        "No matching signature for READ_SA for argument types: TIMESTAMP, TIMESTAMP, INT64, "
        "INT64, ARRAY<STRING>. " + SIGNATURE + marked(GOOD.replace("@token", "5"), 26),
    ),
    "too many arguments": (
        {"sql": GOOD.replace("@heartbeat", "@heartbeat,NULL,NULL")},
        INVALID,
        "No matching signature for READ_SA for argument types: TIMESTAMP, TIMESTAMP, STRING, "
        "INT64, ARRAY<STRING>, NULL. "
        + SIGNATURE
        + marked(GOOD.replace("@heartbeat", "@heartbeat,NULL,NULL"), 26),
    ),
    "not a timestamp": (
        {"sql": "SELECT * FROM READ_SA('nonsense', NULL, NULL, 1000)"},
        INVALID,
        'Could not cast literal "nonsense" to type TIMESTAMP [at 1:23]\n'
        + marked("SELECT * FROM READ_SA('nonsense', NULL, NULL, 1000)", 23),
    ),
    "unknown name": (
        {"sql": "SELECT * FROM READ_SA(@start, nope => 1)"},
        INVALID,
        "Named argument nope not found in signature for call to function READ_SA [at 1:31]\n"
        + marked("SELECT * FROM READ_SA(@start, nope => 1)", 31),
    ),
    "name twice": (
        {"sql": "SELECT * FROM READ_SA(start_timestamp=>@start, START_TIMESTAMP=>@start)"},
        INVALID,
        "Duplicate named argument START_TIMESTAMP found in call to function READ_SA [at 1:48]\n"
        + marked("SELECT * FROM READ_SA(start_timestamp=>@start, START_TIMESTAMP=>@start)", 48),
    ),
    "name of a positional one": (
        {"sql": "SELECT * FROM READ_SA(@start, start_timestamp=>@start)"},
        INVALID,
        "Named argument `start_timestamp` duplicates positional argument 1, which also provides "
        "`start_timestamp` [at 1:31]\n"
        + marked("SELECT * FROM READ_SA(@start, start_timestamp=>@start)", 31),
    ),
    "positional after named": (
        {"sql": "SELECT * FROM READ_SA(heartbeat_milliseconds=>1, @start)"},
        INVALID,
        "Call to function READ_SA must not specify positional arguments after named arguments; "
        "named arguments must be specified last in the argument list [at 1:23]\n"
        + marked("SELECT * FROM READ_SA(heartbeat_milliseconds=>1, @start)", 23),
    ),
    "unclosed": (
        {"sql": "SELECT * FROM READ_SA(@start"},
        INVALID,
        'Syntax error: Expected ")" or "," but got end of statement [at 1:29]\n'
        + marked("SELECT * FROM READ_SA(@start", 29),
    ),
    "two semicolons": (
        {"sql": GOOD + ";;"},
        INVALID,
        'Syntax error: Expected end of input but got ";" [at 1:68]\n' + marked(GOOD + ";;", 68),
    ),
    "unknown hint": (
        {"sql": "@{MAKE_FAST=1} " + GOOD},
        INVALID,
        "Unsupported hint: MAKE_FAST.",
    ),
    "no arguments": (
        {"sql": "SELECT * FROM READ_SA()"},
        INVALID,
        "start_timestamp must not be null.",
    ),
    "null start": ({"start": None}, INVALID, "start_timestamp must not be null."),
    "start before creation": (
        {"start": "1970-01-01T00:00:01Z"},
        RANGE,
        (
            "Specified start_timestamp is too far in the past. Please specify a start_timestamp within "
            "the earliest read timestamp: 1970-01-01T00:00:01.00003+00:00. Received start_timestamp: "
            "1970-01-01T00:00:01+00:00."
        ),
    ),
    "start too late": (
        {"start": "1970-01-01T00:10:02Z"},
        RANGE,
        (
            "Specified start_timestamp is too far in the future. Please specify a start_timestamp "
            "within the earliest read timestamp: 1970-01-01T00:00:01.00003+00:00, and the current "
            "maximum start timestamp: 1970-01-01T00:10:01.00004+00:00. Received start_timestamp: "
            "1970-01-01T00:10:02+00:00."
        ),
    ),
    "start after end": (
        {"start": "1970-01-01T00:00:02Z", "end": "1970-01-01T00:00:01.5Z"},
        INVALID,
        (
            "If end_timestamp is specified, start_timestamp must be <= end_timestamp. Received "
            "start_timestamp: 1970-01-01T00:00:02+00:00, end_timestamp: 1970-01-01T00:00:01.5+00:00."
        ),
    ),
    "null heartbeat": ({"heartbeat": None}, INVALID, "heartbeat_milliseconds must not be null."),
    "heartbeat too short": (
        {"heartbeat": "99"},
        RANGE,
        (
            "heartbeat_milliseconds must be within min 100 and max 300000. Received "
            "heartbeat_milliseconds: 99."
        ),
    ),
    "heartbeat too long": (
        {"heartbeat": "300001"},
        RANGE,
        (
            "heartbeat_milliseconds must be within min 100 and max 300000. Received "
            "heartbeat_milliseconds: 300001."
        ),
    ),
    "negative heartbeat": (
        {"sql": GOOD.replace("@heartbeat", "-5")},
        RANGE,
        (
            "heartbeat_milliseconds must be within min 100 and max 300000. Received "
            "heartbeat_milliseconds: -5."
        ),
    ),
    "heartbeat of letters": (
        {"heartbeat": "x"},
        Code.FAILED_PRECONDITION,
        "Could not parse x as an integer",
    ),
    "read options": (
        {"sql": GOOD.replace("@heartbeat", "@heartbeat, ['a']")},
        UNIMPLEMENTED,
        "read_options must be null.",
    ),
    "read options by parameter": (
        {"sql": GOOD.replace("@heartbeat", "@heartbeat, @options"), "options": ["x"]},
        UNIMPLEMENTED,
        "read_options must be null.",
    ),
    "unbound parameter": (
        {"sql": GOOD.replace("@token", "@missing")},
        INVALID,
        "No parameter found for binding: missing",
    ),
    "foreign token": (
        {"token": "zzz"},
        INVALID,
        (
            "Specified partition_token is invalid, as it does not belong to the Change Stream "
            "associated with the TVF. Received partition_token: zzz."
        ),
    ),
    "empty token": (
        {"token": ""},
        INVALID,
        (
            "Specified partition_token is invalid, as it does not belong to the Change Stream "
            "associated with the TVF. Received partition_token: ."
        ),
    ),
}


@pytest.mark.parametrize("cause", TEXTS)
def test_code_and_text(bank, cause: str) -> None:
    arguments, code, message = TEXTS[cause]
    prepare(bank)

    assert ask(bank, **{"sql": GOOD, **arguments}) == (code, message)


POSTGRES_TEXTS = {
    "unknown stream": (
        {
            "sql": POSTGRES.replace("_sa", "_nope"),
            "types": {"p1": "TIMESTAMP", "p2": "TIMESTAMP", "p3": "STRING", "p4": "INT64"},
        },
        Code.NOT_FOUND,
        (
            "[ERROR] function spanner.read_json_nope(timestamp with time zone, timestamp with time "
            "zone, text, bigint, unknown) does not exist\nHint: No function matches the given name "
            "and argument types. You might need to add explicit type casts."
        ),
    ),
    "another schema": (
        {"sql": "SELECT * FROM read_json_sa('x', null)"},
        Code.NOT_FOUND,
        (
            "[ERROR] function read_json_sa(unknown, unknown) does not exist\nHint: No function "
            "matches the given name and argument types. You might need to add explicit type casts."
        ),
    ),
    "the other mode's function": (
        {"sql": "SELECT * FROM spanner.read_proto_bytes_sa(null)"},
        Code.NOT_FOUND,
        (
            "[ERROR] function spanner.read_proto_bytes_sa(unknown) does not exist\nHint: No "
            "function matches the given name and argument types. You might need to add explicit "
            "type casts."
        ),
    ),
    "unknown column": (
        {"sql": POSTGRES.replace("*", "ChangeRecord")},
        INVALID,
        '[ERROR] column "changerecord" does not exist',
    ),
    "expression": (
        {"sql": POSTGRES.replace("$4", "$4+1")},
        INVALID,
        LITERAL.format(3).replace("READ_SA", "read_json_sa"),
    ),
    "null start": ({"sql": POSTGRES, "start": None}, INVALID, "start_timestamp must not be null."),
    "read options": (
        {"sql": POSTGRES.replace("null", "ARRAY['a']")},
        UNIMPLEMENTED,
        "read_options must be null.",
    ),
}


@pytest.mark.parametrize("cause", POSTGRES_TEXTS)
def test_code_and_text_in_postgres(postgres_bank, cause: str) -> None:
    arguments, code, message = POSTGRES_TEXTS[cause]
    prepare(postgres_bank)

    assert ask(postgres_bank, **arguments) == (code, message)


def test_a_start_outside_the_life_and_an_expired_stream_partition(bank) -> None:
    prepare(bank)
    streams = bank.database.streams
    token = streams.state("SA").partitions.live[0].token
    (child,) = streams.move("SA", now_us=1_000_050, token=token)
    bank.now_us = 1_000_060

    assert ask(bank, GOOD, token=token, start=format_us(1_000_051)) == (
        RANGE,
        (
            "Specified start_timestamp is invalid for the partition. Please specify a start_timestamp "
            "within 1970-01-01T00:00:01.00003+00:00 and 1970-01-01T00:00:01.00005+00:00. Received "
            "start_timestamp: 1970-01-01T00:00:01.000051+00:00."
        ),
    )
    assert ask(bank, GOOD, token=child.token, start=format_us(1_000_049)) == (
        RANGE,
        (
            "Specified start_timestamp is invalid for the partition. Please specify a start_timestamp "
            "within 1970-01-01T00:00:01.00005+00:00 and 1970-01-01T00:10:01.00006+00:00. Received "
            "start_timestamp: 1970-01-01T00:00:01.000049+00:00."
        ),
    )
    bank.now_us += 8 * 86_400_000_000
    assert ask(bank, GOOD, token=token, start=format_us(bank.now_us)) == (
        RANGE,
        (
            "This partition is no longer valid. All Change Stream records associated with this "
            "partition have expired and have been deleted, as specified by the Change Stream retention "
            "period."
        ),
    )


def test_mutable_key_ranges_need_an_end_within_half_an_hour(bank) -> None:
    prepare(bank, mutable=True)

    assert ask(bank, GOOD, end=None) == (INVALID, "end_timestamp must not be null.")
    assert ask(bank, GOOD, end="1970-01-01T00:30:01.000041Z") == (
        RANGE,
        (
            "Specified end_timestamp is too far in the future. Please specify an end_timestamp within "
            "the earliest start timestamp: 1970-01-01T00:00:01.00004+00:00, and the current maximum "
            "end timestamp: 1970-01-01T00:30:01.00004+00:00. Received end_timestamp: "
            "1970-01-01T00:30:01.000041+00:00."
        ),
    )
    assert ask(bank, GOOD, end="1970-01-01T00:30:01.000040Z", token="zzz")[0] is INVALID


def test_each_check_comes_before_the_next_one(bank) -> None:
    prepare(bank)
    wrong: dict[str, Plain] = {
        "start": "1970-01-01T00:00:01Z",
        "end": "1970-01-01T00:00:00Z",
        "heartbeat": "5",
        "options": ["x"],
        "token": "zzz",
    }
    sql = GOOD.replace("@heartbeat", "@heartbeat, @options")
    texts = ["too far in the past", "must be <= end_timestamp", "must be within min 100"]
    texts += ["read_options must be null", "zzz"]
    rights = [("start", NOW), ("end", NOW), ("heartbeat", "100"), ("options", None)]
    for text, (name, right) in zip(texts, [*rights, ("token", None)], strict=True):
        assert text in ask(bank, sql, **wrong)[1]
        wrong[name] = right


def test_the_transaction_and_the_method() -> None:
    only = (
        "Change stream queries must be strong reads executed via single use transactions using the "
        "ExecuteStreamingSql API."
    )
    assert query_errors.wrong_transaction().message == (
        f"Change stream queries are not supported for multi use transactions. {only}"
    )
    assert query_errors.wrong_method().message == (
        f"Change stream queries are not supported for the ExecuteSql API. {only}"
    )
    assert query_errors.wrong_transaction().code is query_errors.wrong_method().code is INVALID


def test_too_many_readers() -> None:
    assert query_errors.too_many_readers().code is Code.RESOURCE_EXHAUSTED
    assert "limit is 20" in query_errors.too_many_readers().message
