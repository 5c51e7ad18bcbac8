"""Queries over the wire: what is asked, what comes back, and how each end is reported."""

import asyncio
import os
import platform
import subprocess
import sys
import threading
from pathlib import Path

import grpc
import pytest
from google.cloud.spanner_v1.types import TransactionSelector
from google.protobuf.any_pb2 import Any
from google.rpc.error_details_pb2 import ResourceInfo
from google.rpc.status_pb2 import Status

import tidegate
from tests.reading import decoded, received
from tidegate.producer.accelerator import SWITCH
from tidegate.producer.description import GOOGLE_SQL, IMMUTABLE_KEY_RANGE
from tidegate.producer.errors import PositionExpired, QueryInterrupted, QueryRefused, TokenRefused
from tidegate.producer.records import HeartbeatRecord
from tidegate.producer.spanner.decode import ColumnTypesCache, ResponseDecoder
from tidegate.producer.spanner.forms import form_of
from tidegate.producer.spanner.stream import SpannerChangeStream, SpannerResponse
from tidegate.schemas.errors import SchemaError

REPOSITORY = Path(__file__).parents[4]
SECOND_NS = 1_704_164_645_000_000_000
ARGUMENTS = {"token": "token", "start_ns": SECOND_NS + 1, "end_ns": None, "heartbeat_ms": 1000}


@pytest.fixture
def stream(channels):
    return SpannerChangeStream(channels, form_of(GOOGLE_SQL, IMMUTABLE_KEY_RANGE, "Everything"))


@pytest.fixture
def read(tasks):
    """Read a query to its end."""
    return lambda query: list(decoded(query, tasks))


def answer_with(code, details, trailers=()):
    def answer(_request, context):
        context.set_trailing_metadata(trailers)
        context.abort(code, details)
        yield

    return answer


@pytest.mark.rule(
    "spanner-googlesql-query",
    "spanner-read-options",
    "spanner-transaction-options",
    "spanner-read-timestamp",
    "P7",
    "spanner-deadline",
    "spanner-query-options",
)
def test_what_is_asked(stream, spanner, read):
    assert read(stream.query(**ARGUMENTS)) == []
    session, query = spanner.requests
    assert session.session.multiplexed
    assert session.session.creator_role == "reader"
    assert query.session.endswith("/sessions/s1")
    assert query.sql == (
        "SELECT ChangeRecord FROM `READ_Everything`(start_timestamp => @start_timestamp, "
        "end_timestamp => @end_timestamp, partition_token => @partition_token, "
        "heartbeat_milliseconds => @heartbeat_milliseconds)"
    )
    assert query.transaction == TransactionSelector.pb()(single_use={"read_only": {"strong": True}})
    assert {field.name for field, _ in query.ListFields()} == {
        "session", "transaction", "sql", "params", "param_types",
    }  # fmt: skip
    assert dict(query.params) == {
        "start_timestamp": "2024-01-02T03:04:05.000000001Z",
        "end_timestamp": None,
        "partition_token": "token",
        "heartbeat_milliseconds": "1000",
    }
    assert set(query.param_types) == set(query.params)
    assert min(spanner.times_left_s) > 10**8  # no deadline
    for sent in spanner.metadata:
        assert sent["google-cloud-resource-prefix"] == "projects/p/instances/i/databases/d"
        assert "x-goog-request-params" in sent


def test_calls_say_who_makes_them(stream, spanner, read):
    """The session's over gRPC and the query's over h2, without the names of other libraries."""
    read(stream.query(**ARGUMENTS))
    python = platform.python_version()

    assert [sent["x-goog-api-client"] for sent in spanner.metadata] == [
        f"tidegate/{tidegate.__version__} gl-python/{python}"
    ] * 2


@pytest.mark.rule("spanner-initial-token")
def test_the_initial_query_has_no_token_and_a_bounded_one_an_end(stream, spanner, read):
    read(stream.query(**{**ARGUMENTS, "token": "", "end_ns": SECOND_NS}))
    params = dict(spanner.requests[-1].params)
    assert params["partition_token"] is None
    assert params["end_timestamp"] == "2024-01-02T03:04:05Z"


def test_each_message_is_one_list_and_the_session_is_shared(stream, spanner, wire, read):
    spanner.on_stream = lambda _request, _context: iter(
        [
            wire.message(wire.heartbeat_row(), metadata=wire.row_type()),
            wire.message(),
            wire.message(wire.heartbeat_row(), wire.heartbeat_row()),
        ]
    )
    heartbeat = HeartbeatRecord(SECOND_NS)
    for _ in range(2):
        assert read(stream.query(**ARGUMENTS)) == [[heartbeat], [heartbeat, heartbeat]]
    assert spanner.sessions == 1


def test_a_large_message_is_taken(stream, spanner, wire, read):
    row = wire.data_row(transaction_tag="x" * 6_000_000)
    spanner.on_stream = lambda *_: iter([wire.message(row, metadata=wire.row_type())])
    ((record,),) = read(stream.query(**ARGUMENTS))
    assert len(record.transaction_tag) == 6_000_000


def test_a_message_that_takes_long_is_no_silence(stream, spanner, wire, tasks, monkeypatch):
    """Its parts complete no record, give back none of what was taken, and need nothing more."""
    monkeypatch.setattr("tidegate.producer.spanner.stream._PART_EVERY_S", 0.0)
    row = wire.data_row(transaction_tag="x" * 6_000_000)
    beat = wire.message(wire.heartbeat_row(), metadata=wire.row_type())
    spanner.on_stream = lambda *_: iter([wire.message(row, metadata=wire.row_type()), beat])
    query, taken, parts = stream.query(**ARGUMENTS), 0, 0
    while (size := tasks.run(query.next_size)) is not None:
        assert (size == 0) == bool(taken)
        taken += size
        records, kept = tasks.run(query.receive).decode()
        assert kept in (0, taken)
        parts += kept > 0
        taken = kept
        if records:
            assert len(getattr(records[0], "transaction_tag", "x" * 6_000_000)) == 6_000_000
    assert parts > 1
    assert taken == 0


def test_a_query_that_waits_behind_others_says_so(stream, spanner, wire, tasks):
    going_on = threading.Event()
    beat = wire.message(wire.heartbeat_row(), metadata=wire.row_type())

    def answer(*_):
        yield beat
        going_on.wait(60)
        yield beat

    spanner.on_stream = answer
    query = stream.query(**ARGUMENTS)

    async def wait_behind():
        assert await query.next_size() > 0
        assert (await query.receive()).decode()[0] == [HeartbeatRecord(SECOND_NS)]
        waiting = asyncio.create_task(query.next_size())
        await asyncio.sleep(0)
        query._responses._call.yield_to_others(asyncio.get_running_loop().time() + 60)
        assert await waiting == 0
        part = await query.receive()
        assert (part.size_bytes, part.decode()) == (0, ([], 0))

    tasks.run(wait_behind)
    going_on.set()
    assert list(decoded(query, tasks)) == [[HeartbeatRecord(SECOND_NS)]]


@pytest.mark.parametrize(
    "code",
    ["UNAVAILABLE", "ABORTED", "DEADLINE_EXCEEDED", "INTERNAL", "RESOURCE_EXHAUSTED", "CANCELLED"],
)
def test_what_may_pass_is_retriable(stream, spanner, code, read):
    spanner.on_stream = answer_with(grpc.StatusCode[code], "later")
    with pytest.raises(QueryInterrupted) as caught:
        read(stream.query(**ARGUMENTS))
    assert caught.value.retriable
    assert caught.value.code == code


@pytest.mark.parametrize(
    "code",
    ["PERMISSION_DENIED", "NOT_FOUND", "INVALID_ARGUMENT"],
)
def test_what_needs_somebody_says_what_to_do(stream, spanner, code, read):
    spanner.on_stream = answer_with(grpc.StatusCode[code], "no")
    with pytest.raises(QueryRefused) as caught:
        read(stream.query(**ARGUMENTS))
    assert not caught.value.retriable
    assert caught.value.hint
    assert caught.value.code == code


def test_records_before_an_error_are_delivered(stream, spanner, wire, tasks):
    def answer(_request, context):
        yield wire.message(wire.heartbeat_row(), metadata=wire.row_type())
        context.abort(grpc.StatusCode.UNAVAILABLE, "gone")

    spanner.on_stream = answer
    got = []
    with pytest.raises(QueryInterrupted):
        got.extend(decoded(stream.query(**ARGUMENTS), tasks))
    assert got == [[HeartbeatRecord(SECOND_NS)]]


@pytest.mark.rule("spanner-start-limits", "spanner-expired-position")
def test_an_expired_position_names_what_is_lost(stream, spanner, read):
    spanner.on_stream = answer_with(
        grpc.StatusCode.OUT_OF_RANGE,
        "Specified start_timestamp is too far in the past. Please specify a start_timestamp within "
        "the earliest read timestamp: 2025-01-01T00:00:00.5Z. Received start_timestamp: x.",
    )
    with pytest.raises(PositionExpired) as caught:
        read(stream.query(**ARGUMENTS))
    fields = caught.value.fields
    assert fields["lost_from"] == "2024-01-02T03:04:05.000000001Z"
    assert fields["lost_until"] == "2025-01-01T00:00:00.5Z"
    assert not caught.value.retriable


@pytest.mark.parametrize(
    "earliest", ["2025-01-01T00:00:00.5", "2025-01-01", "2025-13-01T00:00:00Z"]
)
def test_an_earliest_time_of_another_form_is_shown_as_it_is(stream, spanner, read, earliest):
    text = f"too far in the past. Please specify within the earliest read timestamp: {earliest}."
    spanner.on_stream = answer_with(grpc.StatusCode.OUT_OF_RANGE, text)
    with pytest.raises(PositionExpired) as caught:
        read(stream.query(**ARGUMENTS))
    assert caught.value.fields["lost_until"] == earliest


@pytest.mark.rule("spanner-start-before-token")
@pytest.mark.parametrize("later", ["refused", "expired", "away", "read"])
def test_a_stream_that_was_created_again_refuses_the_token(stream, spanner, wire, read, later):
    """Spanner compares the start with the stream's creation before it looks at the token."""
    created = "2025-01-01T00:00:00.5Z"
    too_old = f"too far in the past. Please specify within the earliest read timestamp: {created}."
    foreign = "Specified partition_token is invalid, as it does not belong to the Change Stream"
    asked = []

    def answer(request, context):
        asked.append(dict(request.params))
        if request.params["start_timestamp"] < created:
            context.abort(grpc.StatusCode.OUT_OF_RANGE, too_old)
        if later == "refused":
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, foreign)
        if later == "expired":
            context.abort(grpc.StatusCode.OUT_OF_RANGE, "This partition is no longer valid.")
        if later == "away":
            context.abort(grpc.StatusCode.UNAVAILABLE, "away")
        yield wire.message(wire.heartbeat_row(), metadata=wire.row_type())

    spanner.on_stream = answer
    with pytest.raises(TokenRefused if later == "refused" else PositionExpired) as caught:
        read(stream.query(**ARGUMENTS))
    first, second = asked
    assert second["partition_token"] == "token"
    assert second["start_timestamp"] == second["end_timestamp"] == "2025-01-01T00:00:01.500000Z"
    assert caught.value.fields["start"] == first["start_timestamp"]
    assert ("dropped and created again" in caught.value.hint) == (later == "refused")
    asked.clear()
    with pytest.raises(PositionExpired):  # the initial query has no token
        read(stream.query(**{**ARGUMENTS, "token": ""}))
    assert len(asked) == 1


def test_a_query_that_is_stopped_while_its_token_is_asked_for_ends(stream, spanner, tasks):
    asked = threading.Event()

    def answer(request, context):
        if request.params["start_timestamp"] < "2025":
            text = "the earliest read timestamp: 2025-01-01T00:00:00Z."
            context.abort(grpc.StatusCode.OUT_OF_RANGE, text)
        asked.set()
        while context.is_active():
            threading.Event().wait(0.001)
        yield

    spanner.on_stream = answer
    query = stream.query(**ARGUMENTS)

    async def read():
        waiting = asyncio.create_task(query.next_size())
        await asyncio.to_thread(asked.wait, 60)
        query.cancel()
        await waiting

    with pytest.raises(PositionExpired):
        tasks.run(read)


@pytest.mark.parametrize(
    "details",
    [
        "Specified partition_token is invalid. Received partition_token: zzz.",
        "It does not belong to the Change Stream associated with the TVF.",
        "The token does not belong to the placement TVF READ_s_eu.",
    ],
)
def test_an_unknown_token_is_distinguished_from_an_unknown_stream(stream, spanner, details, read):
    spanner.on_stream = answer_with(grpc.StatusCode.INVALID_ARGUMENT, details)
    with pytest.raises(TokenRefused):
        read(stream.query(**ARGUMENTS))
    text = "Table-valued function not found: READ_Everything [at 1:26]"
    spanner.on_stream = answer_with(grpc.StatusCode.INVALID_ARGUMENT, text)
    with pytest.raises(QueryRefused):
        read(stream.query(**ARGUMENTS))


def test_a_precondition_on_the_age_of_the_start_is_an_expired_position(stream, spanner, read):
    text = "Read-only transaction timestamp has exceeded the maximum timestamp staleness"
    spanner.on_stream = answer_with(grpc.StatusCode.FAILED_PRECONDITION, text)
    with pytest.raises(PositionExpired) as caught:
        read(stream.query(**ARGUMENTS))
    assert caught.value.fields["lost_from"] == "2024-01-02T03:04:05.000000001Z"
    spanner.on_stream = answer_with(grpc.StatusCode.FAILED_PRECONDITION, "Database is dropped")
    with pytest.raises(QueryRefused):
        read(stream.query(**ARGUMENTS))


@pytest.mark.rule("spanner-start-limits", "spanner-heartbeat-interval")
@pytest.mark.parametrize(
    ("details", "named"),
    [
        ("heartbeat_milliseconds must be within min 100", "heartbeat_ms"),
        ("Specified start is too far in the future.", "the setting start, and this host's clock"),
    ],
)
def test_other_ranges_are_settings(stream, spanner, details, named, read):
    spanner.on_stream = answer_with(grpc.StatusCode.OUT_OF_RANGE, details)
    with pytest.raises(QueryRefused) as caught:
        read(stream.query(**ARGUMENTS))
    assert named in caught.value.hint


def test_a_lost_session_is_created_again(stream, spanner, read):
    texts = ["Session not found: s1", "Session was concurrently deleted", "gone: a resource"]
    info = Any()
    info.Pack(ResourceInfo(resource_type="type.googleapis.com/google.spanner.v1.Session"))
    status = Status(code=5, details=[info]).SerializeToString()
    for number, text in enumerate(texts, 1):
        trailers = (("grpc-status-details-bin", status),) if text == texts[-1] else ()
        spanner.on_stream = answer_with(grpc.StatusCode.NOT_FOUND, text, trailers)
        with pytest.raises(QueryInterrupted):
            read(stream.query(**ARGUMENTS))
        spanner.on_stream = lambda *_: iter(())
        assert read(stream.query(**ARGUMENTS)) == []
        assert spanner.sessions == 1 + number


def test_a_rejection_after_accepted_calls_passes_for_some_minutes(
    stream, spanner, channels, read, monkeypatch
):
    now_s, renewed = [0.0], []
    monkeypatch.setattr(channels._rejections, "_clock_s", lambda: now_s[0])
    monkeypatch.setattr(channels._authorization, "renew", lambda: renewed.append(now_s[0]))
    assert read(stream.query(**ARGUMENTS)) == []
    spanner.on_stream = answer_with(grpc.StatusCode.UNAUTHENTICATED, "token revoked")
    for now_s[0] in range(0, 300, 30):
        with pytest.raises(QueryInterrupted, match="token revoked"):
            read(stream.query(**ARGUMENTS))
    now_s[0] = 300
    with pytest.raises(QueryRefused, match="token revoked") as caught:
        read(stream.query(**ARGUMENTS))
    assert "credentials" in caught.value.hint
    assert renewed == [*range(0, 300, 30), 300]


def test_a_session_that_is_refused_raises_an_error(stream, spanner, read):
    spanner.on_session = lambda _request, context: context.abort(
        grpc.StatusCode.NOT_FOUND, "Database not found: d"
    )
    with pytest.raises(QueryRefused, match="Database not found"):
        read(stream.query(**ARGUMENTS))


def test_an_unreadable_message_is_a_schema_error(stream, spanner, wire, read):
    spanner.on_stream = lambda *_: iter([wire.message("text", metadata=wire.row_type())])
    with pytest.raises(SchemaError):
        read(stream.query(**ARGUMENTS))


def test_a_response_is_weighed_as_it_came_and_decoded_later(stream, spanner, wire, tasks):
    message = wire.message(wire.heartbeat_row(), metadata=wire.row_type())
    begun = wire.message([], chunked=True)
    spanner.on_stream = lambda *_: iter([message, begun])
    responses = received(stream.query(**ARGUMENTS), tasks)
    first = next(responses)

    assert first.size_bytes == message.ByteSize()
    assert first.decode() == ([HeartbeatRecord(SECOND_NS)], 0)
    second = next(responses)
    records, kept = second.decode()
    assert records == []
    assert 0 < kept <= second.size_bytes


def test_what_a_message_takes_counts_the_copies_of_what_it_completes(stream, spanner, wire, tasks):
    """A value that came in parts is copied as a whole when its last part is decoded."""
    begun = wire.message([], metadata=wire.row_type(), chunked=True)
    rest = wire.message(wire.heartbeat_row())
    spanner.on_stream = lambda *_: iter([begun, rest])

    async def run():
        query, found = stream.query(**ARGUMENTS), []
        while (size := await query.next_size()) is not None:
            found.append((size, (await query.receive()).decode()[1]))
        return found

    (first, kept), (second, left) = tasks.run(run)
    assert first == 8 * begun.ByteSize()
    assert kept > 0
    assert second == 8 * (rest.ByteSize() + kept) - kept
    assert left == 0


@pytest.mark.parametrize("switch", ["on", "off"])
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_large_value_takes_no_more_than_is_counted_while_it_is_decoded(switch):
    program = """if True:
        from pathlib import Path
        from benchmarks.producer.responses import Case, large_response, responses
        from tidegate.producer.spanner.decode import ColumnTypesCache, ResponseDecoder

        def memory(name):
            lines = Path("/proc/self/status").read_text().splitlines()
            return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024

        decoder, message = ResponseDecoder(ColumnTypesCache()), large_response(16 << 20)
        decoder.decode(responses(Case(1, 1), 1)[0])
        Path("/proc/self/clear_refs").write_text("5")  # the most is what is held now
        before = memory("VmRSS")
        decoder.decode(message)
        print((memory("VmHWM") - before) / len(message) + 1)
    """
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=REPOSITORY,
        env=os.environ | {SWITCH: switch},
        capture_output=True,
        text=True,
        check=True,
    )
    assert 1.5 < float(done.stdout) < 8, done.stdout


def test_bytes_that_are_no_response_are_a_schema_error():
    with pytest.raises(SchemaError):
        SpannerResponse(b"\xff\xff", ResponseDecoder(ColumnTypesCache())).decode()


def test_a_response_that_stops_in_a_value_is_a_schema_error(stream, spanner, wire, read):
    message = wire.message([], metadata=wire.row_type(), chunked=True)
    spanner.on_stream = lambda *_: iter([message])
    with pytest.raises(SchemaError, match="middle"):
        read(stream.query(**ARGUMENTS))


def test_cancelling_from_another_thread_ends_a_silent_query(stream, spanner, wire, tasks):
    ended, asked = threading.Event(), threading.Event()

    def answer(_request, context):
        context.add_callback(ended.set)
        yield wire.message(wire.heartbeat_row(), metadata=wire.row_type())
        ended.wait(60)

    spanner.on_stream = answer
    query = stream.query(**ARGUMENTS)
    outcome = []

    def read_on():
        try:
            for _ in received(query, tasks):
                asked.set()
        except QueryInterrupted as error:
            outcome.append(error.code)

    thread = threading.Thread(target=read_on)
    thread.start()
    assert asked.wait(30)
    query.cancel()
    thread.join(30)
    assert not thread.is_alive()
    assert outcome == ["CANCELLED"]
    assert ended.wait(30)


def test_a_query_cancelled_before_it_began_never_begins(stream, spanner, read):
    query = stream.query(**ARGUMENTS)
    query.cancel()
    assert read(query) == []
    assert not any(hasattr(request, "sql") for request in spanner.requests)


@pytest.fixture
def beats(spanner, wire):
    """Let queries return heartbeats."""

    def answer(*_):
        return iter([wire.message(wire.heartbeat_row(), metadata=wire.row_type())] * 9)

    return lambda: setattr(spanner, "on_stream", answer)


def test_places_on_a_channel_are_given_back_however_a_query_ends(
    stream, spanner, channels, read, beats
):
    read(stream.query(**ARGUMENTS))
    spanner.on_stream = answer_with(grpc.StatusCode.ABORTED, "x")
    with pytest.raises(QueryInterrupted):
        read(stream.query(**ARGUMENTS))
    beats()
    assert len(read(stream.query(**ARGUMENTS))) == 9
    assert places(channels) == [0]


def test_a_cancelled_query_gives_its_place_back(stream, channels, beats, tasks):
    query = stream.query(**ARGUMENTS)
    beats()
    assert tasks.run(query.next_size) is not None
    query.cancel()
    query.cancel()
    tasks.run(lambda: asyncio.sleep(0))
    assert places(channels) == [0]


def places(channels):
    """The streams on each connection."""
    return [place.streams for place in channels._streams._places]


def test_many_queries_run_on_several_connections(stream, spanner, channels, wire, tasks):
    release = threading.Event()

    def answer(*_):
        yield wire.message(wire.heartbeat_row(), metadata=wire.row_type())
        release.wait(60)

    spanner.on_stream = answer
    queries = [decoded(stream.query(**ARGUMENTS), tasks) for _ in range(120)]
    try:
        for query in queries:
            assert next(query) == [HeartbeatRecord(SECOND_NS)]
        assert places(channels) == [90, 30]
    finally:
        release.set()
    for query in queries:
        assert list(query) == []
    assert places(channels) == [0]  # one stays for the next query
