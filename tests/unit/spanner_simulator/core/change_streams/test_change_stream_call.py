from __future__ import annotations

import pytest

from tidegate.spanner_simulator.core.change_streams.change_stream_call import (
    CallArguments,
    check_partition,
    is_change_stream_query,
    parse_call,
    resolve,
)
from tidegate.spanner_simulator.core.timestamps import format_us
from tidegate.spanner_simulator.core.values import Plain
from tidegate.spanner_simulator.errors import Code, SpannerError

DAY_US = 86_400_000_000
GOOD = "SELECT ChangeRecord FROM READ_Bank(@start, @end, @token, @heartbeat)"
COMBINED = (
    "Change stream TVF must not be combined with any other SQL statements. Change stream records "
    "should be read using `SELECT ChangeRecord FROM READ_Bank(<args>)`."
)


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
        "SELECT ChangeRecord FROM READ_Bank('1970-01-01T00:00:01.00002Z', NULL, NULL, 1000)",
        (
            "SELECT ChangeRecord FROM READ_Bank(TIMESTAMP '1970-01-01T00:00:01.00002Z', NULL, NULL,"
            " 1000)"
        ),
    ],
)
def test_accepted_forms(bank, sql: str) -> None:
    assert is_change_stream_query(sql)
    assert call(bank, sql) == CallArguments(bank.now_us * 1000, None, None, 1_000_000)


def test_a_far_end_means_no_end(bank) -> None:
    assert call(bank, end="9999-12-31T23:59:59.999999999Z").end_ns is None
    assert call(bank, end=format_us(bank.now_us)).end_ns == bank.now_us * 1000


def test_other_statements_are_no_change_stream_queries() -> None:
    assert not is_change_stream_query("SELECT * FROM READ_Bank")
    assert not is_change_stream_query("SELECT ReadMe(1) FROM T")


ERRORS = [
    (
        {"sql": "SELECT ChangeRecord FROM READ_NOPE(@a)"},
        Code.INVALID_ARGUMENT,
        (
            "Table-valued function not found: READ_NOPE [at 1:26]\n"
            "SELECT ChangeRecord FROM READ_NOPE(@a)"
        ),
    ),
    ({"sql": GOOD + " AS c"}, Code.UNIMPLEMENTED, COMBINED),
    ({"sql": GOOD + " WHERE TRUE"}, Code.UNIMPLEMENTED, COMBINED),
    ({"sql": GOOD.replace("ChangeRecord", "x")}, Code.UNIMPLEMENTED, COMBINED),
    ({"sql": GOOD.replace("ChangeRecord", "ChangeRecord, 1")}, Code.UNIMPLEMENTED, COMBINED),
    (
        {"sql": GOOD.replace("@start", "@start + 1")},
        Code.INVALID_ARGUMENT,
        (
            "Invalid argument of change stream TVF READ_Bank. Argument 0 is not a literal or "
            "parameter. Implicit type conversions are not supported."
        ),
    ),
    ({"start": None}, Code.INVALID_ARGUMENT, "start_timestamp must not be null."),
    (
        {"start": "1970-01-01T00:00:01Z"},
        Code.OUT_OF_RANGE,
        (
            "Specified start_timestamp is too far in the past. Please specify a start_timestamp "
            "within the earliest read timestamp: 1970-01-01T00:00:01.000012Z. Received "
            "start_timestamp: 1970-01-01T00:00:01Z."
        ),
    ),
    (
        {"start": "1970-01-01T00:10:02Z"},
        Code.OUT_OF_RANGE,
        (
            "Specified start_timestamp is too far in the future. Please specify a start_timestamp "
            "within the earliest read timestamp: 1970-01-01T00:00:01.000012Z, and the current "
            "maximum start timestamp: 1970-01-01T00:10:01.00002Z. Received start_timestamp: "
            "1970-01-01T00:10:02Z."
        ),
    ),
    (
        {"start": "1970-01-01T00:00:02Z", "end": "1970-01-01T00:00:01.5Z"},
        Code.INVALID_ARGUMENT,
        (
            "If end_timestamp is specified, start_timestamp must be <= end_timestamp. Received "
            "start_timestamp: 1970-01-01T00:00:02Z, end_timestamp: 1970-01-01T00:00:01.5Z."
        ),
    ),
    ({"heartbeat": None}, Code.INVALID_ARGUMENT, "heartbeat_milliseconds must not be null."),
    (
        {"heartbeat": "99"},
        Code.OUT_OF_RANGE,
        (
            "heartbeat_milliseconds must be within min 100 and max 300000. Received "
            "heartbeat_milliseconds: 99."
        ),
    ),
    (
        {"sql": GOOD.replace("@heartbeat", "@heartbeat, @options"), "options": ["x"]},
        Code.UNIMPLEMENTED,
        "read_options must be null.",
    ),
    (
        {"sql": GOOD.replace("@token", "@missing")},
        Code.INVALID_ARGUMENT,
        "No parameter found for binding: missing",
    ),
]


@pytest.mark.parametrize(("arguments", "code", "message"), ERRORS)
def test_errors(bank, arguments: dict[str, Plain], code: Code, message: str) -> None:
    with pytest.raises(SpannerError) as caught:
        call(bank, **arguments)

    assert (caught.value.code, caught.value.message) == (code, message)


def test_a_start_before_the_retention_is_refused_when_the_stream_is_older(bank) -> None:
    start = format_us(bank.now_us)
    bank.tick(7 * DAY_US)
    assert call(bank, start=start).start_ns > 0
    bank.tick(1)

    with pytest.raises(SpannerError, match="too far in the past") as caught:
        call(bank, start=start)
    assert caught.value.code is Code.OUT_OF_RANGE


def check(bank, token: str, start_us: int) -> str:
    stream = bank.database.catalogue.stream("Bank")
    partitions = bank.database.streams.state("Bank").partitions
    return check_partition(
        stream, partitions, token, start_ns=start_us * 1000, now_us=bank.now_us
    ).token


def test_a_token_must_belong_to_the_stream(bank) -> None:
    with pytest.raises(SpannerError) as caught:
        check(bank, "zzz", bank.now_us)

    assert caught.value.code is Code.INVALID_ARGUMENT
    assert caught.value.message == (
        "Specified partition_token is invalid, as it does not belong to the Change Stream "
        "associated with the TVF. Received partition_token: zzz."
    )


def test_a_start_must_lie_in_the_life_of_the_token(bank) -> None:
    token = bank.database.streams.state("Bank").partitions.live[0].token
    bank.tick(1000)
    (child,) = bank.database.streams.move("Bank", now_us=bank.now_us, token=token)

    assert check(bank, token, child.start_us) == token
    assert check(bank, child.token, child.start_us) == child.token
    for wrong, start_us in ((token, child.start_us + 1), (child.token, child.start_us - 1)):
        with pytest.raises(SpannerError, match="start_timestamp is invalid for the par") as caught:
            check(bank, wrong, start_us)
        assert caught.value.code is Code.OUT_OF_RANGE


def test_an_expired_token_is_no_longer_valid(bank) -> None:
    token = bank.database.streams.state("Bank").partitions.live[0].token
    bank.database.streams.move("Bank", now_us=bank.tick(), token=token)
    bank.tick(8 * DAY_US)

    with pytest.raises(SpannerError, match="This partition is no longer valid") as caught:
        check(bank, token, bank.now_us)
    assert caught.value.code is Code.OUT_OF_RANGE


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
