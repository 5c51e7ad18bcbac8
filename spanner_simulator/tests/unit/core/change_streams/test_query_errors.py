"""The service's refusals of change stream queries, code and text, in the order of its checks."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from spanner_simulator.core.change_streams import query_errors
from spanner_simulator.core.change_streams.change_stream_call import (
    check_partition,
    is_change_stream_query,
    parse_call,
    resolve,
)
from spanner_simulator.core.timestamps import format_us
from spanner_simulator.core.values import Plain
from spanner_simulator.errors import Code, SpannerError

GOOD = "SELECT ChangeRecord FROM READ_SA(@start, @end, @token, @heartbeat)"
POSTGRES = 'SELECT * FROM "spanner"."read_json_sa"($1, $2, $3, $4, null)'
CALL = "SELECT * FROM READ_SA"
INVALID, RANGE, UNIMPLEMENTED = Code.INVALID_ARGUMENT, Code.OUT_OF_RANGE, Code.UNIMPLEMENTED
NOW = "1970-01-01T00:00:01.000040Z"
SECOND = "1970-01-01T00:00:01"
FOREIGN = (
    "Specified partition_token is invalid, as it does not belong to the Change Stream associated "
    "with the TVF. Received partition_token: {}."
)
NULL = "{} must not be null."
HEARTBEAT = (
    "heartbeat_milliseconds must be within min 100 and max 300000. Received "
    "heartbeat_milliseconds: {}."
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


# What may stand behind the call, in front of it and in place of its column.
BEHIND = (
    " AS c",
    " WHERE TRUE",
    " LIMIT 1",
    ", T",
    " JOIN T ON TRUE",
    " UNION ALL " + GOOD,
    ";;",
    ")",
)
BEFORE = ("INSERT INTO T ", "@{OPTIMIZER_VERSION=7} ", "WITH q AS (SELECT 1) ")
COLUMNS = ("ChangeRecord, 1", "1", "ChangeRecord AS x", "changerecord", "DISTINCT ChangeRecord")
SHAPES = [
    *(GOOD + text for text in BEHIND),
    *(text + GOOD for text in BEFORE),
    *(GOOD.replace("ChangeRecord", text) for text in COLUMNS),
    *(GOOD.replace("FROM", "FROM T JOIN"), f"SELECT * FROM ({GOOD})", f"({GOOD})"),
]


@pytest.mark.parametrize("sql", SHAPES)
def test_nothing_may_be_combined_with_the_function(bank, sql: str) -> None:
    prepare(bank)
    code, text = ask(bank, sql)
    assert is_change_stream_query(sql)
    assert code is UNIMPLEMENTED
    assert text == (
        "Change stream TVF must not be combined with any other SQL statements. Change stream "
        "records should be read using `SELECT ChangeRecord FROM READ_SA(<args>)`."
    )


@pytest.mark.parametrize(
    "sql",
    [
        *(POSTGRES + end for end in (" AS c", " WHERE true")),
        *(POSTGRES.replace("*", columns) for columns in ("1", "read_json_sa AS x", "x.*")),
    ],
)
def test_nothing_may_be_combined_with_the_postgres_function(postgres_bank, sql: str) -> None:
    prepare(postgres_bank)
    code, text = ask(postgres_bank, sql)
    assert code is UNIMPLEMENTED
    assert text.endswith('read using `select * from "spanner"."read_json_sa"(<args>)`.')


def call(arguments: str) -> dict[str, Plain]:
    return {"sql": f"{CALL}({arguments})"}


def replaced(old: str, new: str, sql: str = GOOD, **parameters: Plain) -> dict[str, Plain]:
    return {"sql": sql.replace(old, new), **parameters}


def no_function(name: str) -> str:
    return f"[ERROR] function {name} does not exist\nHint: No function matches the given name and"


NOT_FOUND = "Table-valued function not found: READ_NOPE [at 2:7]\n FROM `READ_NOPE`(@a)\n      ^"
NO_MATCH = "No matching signature for READ_SA for argument types: TIMESTAMP, TIMESTAMP, "
ARGUMENT = "Invalid argument of change stream TVF READ_SA. Argument {} is not"
NO_OPTIONS = "read_options must be null."
EARLY = (
    "Specified start_timestamp is too far in the past. Please specify a start_timestamp within "
    f"the earliest read timestamp: {SECOND}.00003+00:00. Received start_timestamp: {SECOND}+00:00."
)
# What is asked and the beginning of the refusal's text, by code.
TEXTS: dict[Code, list[tuple[dict[str, Plain], str]]] = {
    INVALID: [
        ({"sql": "SELECT ChangeRecord\n FROM `READ_NOPE`(@a)"}, NOT_FOUND),
        (replaced("ChangeRecord", "x"), "Unrecognized name: x [at 1:8]\n"),
        (replaced("@start", "@start + 1"), ARGUMENT.format(0)),
        (replaced("@heartbeat", "@heartbeat+1"), ARGUMENT.format(3)),
        ({"types": {"start": "STRING"}}, ARGUMENT.format(0)),
        ({"types": {"heartbeat": "STRING"}}, f"{NO_MATCH}STRING, STRING, ARRAY<STRING>."),
        (replaced("@token", "5"), f"{NO_MATCH}INT64, INT64, ARRAY<STRING>."),
        (
            replaced("@heartbeat", "@heartbeat,NULL,NULL"),
            f"{NO_MATCH}STRING, INT64, ARRAY<STRING>, NULL.",
        ),
        (call("'x', NULL, NULL, 1000"), 'Could not cast literal "x" to type'),
        (call("@start, nope => 1"), "Named argument nope not found in signature"),
        (
            call("start_timestamp=>@start, START_TIMESTAMP=>@start"),
            "Duplicate named argument START_TIMESTAMP found in call to function READ_SA [at 1:48]",
        ),
        (
            call("@start, start_timestamp=>@start"),
            "Named argument `start_timestamp` duplicates positional argument 1",
        ),
        (
            call("heartbeat_milliseconds=>1, @start"),
            "Call to function READ_SA must not specify positional arguments after named arguments;",
        ),
        ({"sql": f"{CALL}(@start"}, 'Syntax error: Expected ")" or "," but got end of'),
        ({"start": None}, NULL.format("start_timestamp")),
        (
            {"start": "1970-01-01T00:00:02Z", "end": f"{SECOND}.5Z"},
            "If end_timestamp is specified, start_timestamp must be <= end_timestamp. Received",
        ),
        ({"heartbeat": None}, NULL.format("heartbeat_milliseconds")),
        (replaced("@token", "@missing"), "No parameter found for binding: missing"),
        ({"token": "zzz"}, FOREIGN.format("zzz")),
    ],
    RANGE: [
        ({"start": f"{SECOND}Z"}, EARLY),
        ({"start": "1970-01-01T00:10:02Z"}, "Specified start_timestamp is too far in the"),
        ({"heartbeat": "99"}, HEARTBEAT.format(99)),
        (replaced("@heartbeat", "1, ['a']"), HEARTBEAT.format(1)),
    ],
    UNIMPLEMENTED: [
        (replaced("@heartbeat", "100, ['a']"), NO_OPTIONS),
        (replaced("@heartbeat", "@heartbeat, @options", options=["x"]), NO_OPTIONS),
    ],
    Code.FAILED_PRECONDITION: [({"heartbeat": "x"}, "Could not parse x as an integer")],
}
POSTGRES_TEXTS: dict[Code, list[tuple[dict[str, Plain], str]]] = {
    Code.NOT_FOUND: [
        ({"sql": f"SELECT * FROM {name}(null)"}, no_function(name))
        for name in ("spanner.read_json_nope", "read_json_sa", "spanner.read_proto_bytes_sa")
    ],
    INVALID: [
        (replaced("*", "ChangeRecord", POSTGRES), '[ERROR] column "changerecord" does not exist'),
        (
            replaced("$4", "$4+1", POSTGRES),
            "Invalid argument of change stream TVF read_json_sa. Argument 3 is not a literal",
        ),
        ({"sql": POSTGRES, "start": None}, NULL.format("start_timestamp")),
    ],
    UNIMPLEMENTED: [(replaced("null", "ARRAY['a']", POSTGRES), NO_OPTIONS)],
}


@pytest.mark.parametrize(
    ("which", "asked", "code", "text"),
    [
        (which, asked, code, text)
        for which, texts in (("bank", TEXTS), ("postgres_bank", POSTGRES_TEXTS))
        for code, cases in texts.items()
        for asked, text in cases
    ],
)
def test_code_and_text(
    request: pytest.FixtureRequest, which: str, asked: dict[str, Plain], code: Code, text: str
) -> None:
    bank = request.getfixturevalue(which)
    prepare(bank)
    found, message = ask(bank, **{"sql": GOOD, **asked})
    assert (found, message[: len(text)]) == (code, text)


OUTSIDE = (
    "Specified start_timestamp is invalid for the partition. Please specify a start_timestamp "
    "within {} and {}. Received start_timestamp: {}."
)


def test_a_start_outside_the_life_and_an_expired_stream_partition(bank) -> None:
    prepare(bank)
    streams = bank.database.streams
    token = streams.state("SA").partitions.live[0].token
    (child,) = streams.move("SA", now_us=1_000_050, token=token)
    bank.now_us = 1_000_060

    def time(microseconds: int) -> str:
        return format_us(microseconds).removesuffix("Z") + "+00:00"

    for which, wrong_us, life_us in (
        (token, 1_000_051, (1_000_030, 1_000_050)),
        (child.token, 1_000_049, (1_000_050, 601_000_060)),
    ):
        text = OUTSIDE.format(*map(time, life_us), time(wrong_us))
        assert ask(bank, GOOD, token=which, start=format_us(wrong_us)) == (RANGE, text)
    bank.now_us += 8 * 86_400_000_000
    for _ in range(2):  # as long as it is kept, and when only its token is
        code, text = ask(bank, GOOD, token=token, start=format_us(bank.now_us))
        assert code is RANGE
        assert text.startswith("This partition is no longer valid. All Change Stream records")
        streams.expire(bank.now_us)
    assert token not in streams.state("SA").partitions.by_token


def test_mutable_key_ranges_need_an_end_within_half_an_hour(bank) -> None:
    prepare(bank, mutable=True)
    assert ask(bank, GOOD, end=None) == (INVALID, "end_timestamp must not be null.")
    assert ask(bank, GOOD, end="1970-01-01T00:30:01.000041Z") == (
        RANGE,
        (
            "Specified end_timestamp is too far in the future. Please specify an end_timestamp "
            f"within the earliest start timestamp: {SECOND}.00004+00:00, and the current maximum "
            "end timestamp: 1970-01-01T00:30:01.00004+00:00. Received end_timestamp: "
            "1970-01-01T00:30:01.000041+00:00."
        ),
    )
    assert ask(bank, GOOD, end="1970-01-01T00:30:01.000040Z", token="zzz")[0] is INVALID


def test_each_check_comes_before_the_next_one(bank) -> None:
    prepare(bank)
    wrong: dict[str, Plain] = {
        "start": f"{SECOND}Z",
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


def test_the_transaction_the_method_and_the_number_of_readers() -> None:
    for error, what in (
        (query_errors.wrong_transaction(), "multi use transactions"),
        (query_errors.wrong_method(), "the ExecuteSql API"),
    ):
        assert error.code is INVALID
        assert error.message.startswith(
            f"Change stream queries are not supported for {what}. Change stream queries must be"
        )
    assert query_errors.too_many_readers().code is Code.RESOURCE_EXHAUSTED
    assert "limit is 20" in query_errors.too_many_readers().message
