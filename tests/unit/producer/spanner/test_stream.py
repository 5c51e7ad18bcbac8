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
from google.cloud.spanner_v1.types import (
    DirectedReadOptions,
    ExecuteSqlRequest,
    RequestOptions,
    TransactionSelector,
)
from google.protobuf.any_pb2 import Any
from google.rpc.error_details_pb2 import ResourceInfo
from google.rpc.status_pb2 import Status

import tidegate
from tests.reading import decoded, received
from tidegate.producer.accelerator import SWITCH
from tidegate.producer.description import GOOGLE_SQL, IMMUTABLE_KEY_RANGE
from tidegate.producer.errors import PositionExpired, QueryInterrupted, QueryRefused, TokenRefused
from tidegate.producer.records import HeartbeatRecord
from tidegate.producer.spanner.decoding.struct_rows import ColumnTypesCache, ResponseDecoder
from tidegate.producer.spanner.forms import form_of
from tidegate.producer.spanner.stream import QueryOptions, SpannerChangeStream, SpannerResponse
from tidegate.schemas.errors import SchemaError

REPOSITORY = Path(__file__).parents[4]
SECOND_NS = 1_704_164_645_000_000_000
BEAT = [HeartbeatRecord(SECOND_NS)]
ARGUMENTS = {"token": "token", "start_ns": SECOND_NS + 1, "end_ns": None, "heartbeat_ms": 1000}


def stream_of(channels, *options):
    form = form_of(GOOGLE_SQL, IMMUTABLE_KEY_RANGE, "Everything")
    return SpannerChangeStream(channels, form, *options)


H2_ONLY = pytest.mark.parametrize("transport", ["h2"])


@pytest.fixture(params=["h2", "grpc"])
def transport(request):
    """Each test runs with both clients of queries."""
    return request.param


@pytest.fixture
def stream(channels):
    return stream_of(channels)


@pytest.fixture
def read(tasks, stream):
    return lambda **changes: list(decoded(stream.query(**{**ARGUMENTS, **changes}), tasks))


@pytest.fixture
def refused(read, spanner):
    """The error of a query that the service ends so."""

    def end(code, details, trailers=(), kind=QueryRefused, **changes):
        spanner.on_stream = answer_with(grpc.StatusCode[code], details, trailers)
        with pytest.raises(kind) as caught:
            read(**changes)
        assert type(caught.value) is kind
        return caught.value

    return end


def answer_with(code, details, trailers=()):
    def answer(_request, context):
        context.set_trailing_metadata(trailers)
        context.abort(code, details)
        yield

    return answer


@pytest.fixture
def beat(wire):
    return wire.message(wire.heartbeat_row(), metadata=wire.row_type())


@pytest.mark.rule(
    "spanner-googlesql-query",
    "spanner-read-options",
    "spanner-transaction-options",
    "spanner-read-timestamp",
    "P7",
    "spanner-deadline",
    "spanner-query-options",
)
def test_what_is_asked(spanner, read):
    assert read() == []
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
    # The session's names Google's libraries as well, which make no query.
    own = f"tidegate/{tidegate.__version__} gl-python/{platform.python_version()}"
    by_google, queried = (sent["x-goog-api-client"] for sent in spanner.metadata)
    assert queried == own
    assert by_google.startswith(f"{own} grpc/")


@pytest.mark.rule("spanner-initial-token")
def test_the_initial_query_has_no_token_and_a_bounded_one_an_end(spanner, read):
    read(token="", end_ns=SECOND_NS)
    params = dict(spanner.requests[-1].params)
    assert params["partition_token"] is None
    assert params["end_timestamp"] == "2024-01-02T03:04:05Z"


@pytest.mark.rule("spanner-query-options")
def test_priority_tag_and_replicas_are_those_of_the_settings(channels, spanner, tasks):
    def applied(**options):
        request = ExecuteSqlRequest.pb()()
        QueryOptions(**options).apply(request)
        return request

    kind = DirectedReadOptions.ReplicaSelection.Type
    assert applied() == ExecuteSqlRequest.pb()()
    for priority in ("LOW", "MEDIUM", "HIGH"):
        found = applied(priority=priority, tag="app=cdc").request_options
        assert found.priority == RequestOptions.Priority[f"PRIORITY_{priority}"]
        assert found.request_tag == "app=cdc"
    replicas = applied(replicas=(("us-east4", "READ_ONLY"), ("us-west2", "")))
    assert [
        (selection.location, selection.type_)
        for selection in replicas.directed_read_options.include_replicas.replica_selections
    ] == [("us-east4", kind.READ_ONLY), ("us-west2", kind.TYPE_UNSPECIFIED)]
    # Each query has them.
    query = stream_of(channels, QueryOptions(priority="LOW", tag="app=cdc")).query(**ARGUMENTS)
    assert tasks.run(query.next_size) is None
    sent = spanner.requests[-1].request_options
    assert (sent.priority, sent.request_tag) == (RequestOptions.Priority.PRIORITY_LOW, "app=cdc")


def test_each_message_is_one_list_and_the_session_is_shared(spanner, wire, read, beat):
    both = wire.message(wire.heartbeat_row(), wire.heartbeat_row())
    spanner.on_stream = lambda *_: iter([beat, wire.message(), both])
    for _ in range(2):
        assert read() == [BEAT, BEAT * 2]
    assert spanner.sessions == 1


@H2_ONLY
def test_a_message_that_takes_long_is_no_silence(stream, spanner, wire, tasks, monkeypatch):
    """Its parts complete no record, give back none of what was taken, and need nothing more."""
    monkeypatch.setattr("tidegate.producer.spanner.stream._PART_EVERY_S", 0.0)
    rows = wire.data_row(transaction_tag="x" * 6_000_000), wire.heartbeat_row()
    spanner.on_stream = lambda *_: (wire.message(row, metadata=wire.row_type()) for row in rows)
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


@H2_ONLY
def test_a_query_that_waits_behind_others_says_so(stream, spanner, tasks, beat):
    going_on = threading.Event()

    def answer(*_):
        yield beat
        going_on.wait(60)
        yield beat

    spanner.on_stream = answer
    query = stream.query(**ARGUMENTS)

    async def wait_behind():
        assert await query.next_size() > 0
        assert (await query.receive()).decode()[0] == BEAT
        waiting = asyncio.create_task(query.next_size())
        await asyncio.sleep(0)
        query._responses._call.yield_to_others(asyncio.get_running_loop().time() + 60)
        assert await waiting == 0
        part = await query.receive()
        assert (part.size_bytes, part.decode()) == (0, ([], 0))

    tasks.run(wait_behind)
    going_on.set()
    assert list(decoded(query, tasks)) == [BEAT]


def test_what_may_pass_is_retriable_and_all_else_says_what_to_do(refused):
    for code in ("UNAVAILABLE", "ABORTED", "DEADLINE_EXCEEDED", "INTERNAL", "RESOURCE_EXHAUSTED",
                 "CANCELLED"):  # fmt: skip
        error = refused(code, "later", kind=QueryInterrupted)
        assert (error.retriable, error.code) == (True, code)
    for code in ("PERMISSION_DENIED", "NOT_FOUND", "INVALID_ARGUMENT"):
        error = refused(code, "no")
        assert (error.retriable, error.code) == (False, code)
        assert error.hint


def test_records_before_an_error_are_delivered(stream, spanner, tasks, beat):
    def answer(_request, context):
        yield beat
        context.abort(grpc.StatusCode.UNAVAILABLE, "gone")

    spanner.on_stream = answer
    got = []
    with pytest.raises(QueryInterrupted):
        got.extend(decoded(stream.query(**ARGUMENTS), tasks))
    assert got == [BEAT]


TOO_OLD = "too far in the past. Please specify within the earliest read timestamp: {}."


@pytest.mark.rule("spanner-start-limits", "spanner-expired-position")
def test_an_expired_position_names_what_is_lost(refused):
    for earliest in ("2025-01-01T00:00:00.5Z", "2025-01-01T00:00:00.5", "2025-01-01",
                     "2025-13-01T00:00:00Z"):  # fmt: skip
        error = refused(
            "OUT_OF_RANGE", TOO_OLD.format(earliest) + " Received start_timestamp: x.",
            kind=PositionExpired,
        )  # fmt: skip
        assert error.fields["lost_from"] == "2024-01-02T03:04:05.000000001Z"
        assert error.fields["lost_until"] == earliest  # one of another form is shown unchanged
        assert not error.retriable


@pytest.mark.rule("spanner-start-before-token")
@pytest.mark.parametrize("later", ["refused", "expired", "away", "read"])
def test_a_stream_that_was_created_again_refuses_the_token(spanner, read, later, beat):
    """Spanner compares the start with the stream's creation before it looks at the token."""
    created, asked = "2025-01-01T00:00:00.5Z", []
    answers = {
        "refused": (grpc.StatusCode.INVALID_ARGUMENT, "it does not belong to the Change Stream"),
        "expired": (grpc.StatusCode.OUT_OF_RANGE, "This partition is no longer valid."),
        "away": (grpc.StatusCode.UNAVAILABLE, "away"),
    }  # fmt: skip

    def answer(request, context):
        asked.append(dict(request.params))
        if request.params["start_timestamp"] < created:
            context.abort(grpc.StatusCode.OUT_OF_RANGE, TOO_OLD.format(created))
        if later in answers:
            context.abort(*answers[later])
        yield beat

    spanner.on_stream = answer
    with pytest.raises(TokenRefused if later == "refused" else PositionExpired) as caught:
        read()
    first, second = asked
    assert second["partition_token"] == "token"
    assert second["start_timestamp"] == second["end_timestamp"] == "2025-01-01T00:00:01.500000Z"
    assert caught.value.fields["start"] == first["start_timestamp"]
    assert ("dropped and created again" in caught.value.hint) == (later == "refused")
    asked.clear()
    with pytest.raises(PositionExpired):  # the initial query has no token
        read(token="")
    assert len(asked) == 1


def test_a_query_that_is_stopped_while_its_token_is_asked_for_ends(stream, spanner, tasks):
    asked = threading.Event()

    def answer(request, context):
        if request.params["start_timestamp"] < "2025":
            context.abort(grpc.StatusCode.OUT_OF_RANGE, TOO_OLD.format("2025-01-01T00:00:00Z"))
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


def test_refusals_of_tokens_starts_and_streams_are_distinguished(refused):
    for details in (
        "Specified partition_token is invalid. Received partition_token: zzz.",
        "It does not belong to the Change Stream associated with the TVF.",
        "The token does not belong to the placement TVF READ_s_eu.",
    ):
        refused("INVALID_ARGUMENT", details, kind=TokenRefused)
    refused("INVALID_ARGUMENT", "Table-valued function not found: READ_Everything [at 1:26]")
    text = "Read-only transaction timestamp has exceeded the maximum timestamp staleness"
    error = refused("FAILED_PRECONDITION", text, kind=PositionExpired)
    assert error.fields["lost_from"] == "2024-01-02T03:04:05.000000001Z"
    refused("FAILED_PRECONDITION", "Database is dropped")


@pytest.mark.rule("spanner-start-limits", "spanner-heartbeat-interval")
def test_other_ranges_are_settings(refused):
    for details, named in (
        ("heartbeat_milliseconds must be within min 100", "heartbeat_ms"),
        ("Specified start is too far in the future.", "the setting start, and this host's clock"),
    ):
        assert named in refused("OUT_OF_RANGE", details).hint


def test_a_lost_session_is_created_again(spanner, read, refused):
    answers = spanner.on_session
    spanner.on_session = lambda _request, context: context.abort(
        grpc.StatusCode.NOT_FOUND, "Database not found: d"
    )
    with pytest.raises(QueryRefused, match="Database not found"):
        read()
    spanner.on_session = answers
    texts = ["Session not found: s1", "Session was concurrently deleted", "gone: a resource"]
    info = Any()
    info.Pack(ResourceInfo(resource_type="type.googleapis.com/google.spanner.v1.Session"))
    status = Status(code=5, details=[info]).SerializeToString()
    for number, text in enumerate(texts, 1):
        trailers = (("grpc-status-details-bin", status),) if text == texts[-1] else ()
        refused("NOT_FOUND", text, trailers, kind=QueryInterrupted)
        spanner.on_stream = lambda *_: iter(())
        assert read() == []
        assert spanner.sessions == 1 + number


def test_a_rejection_after_accepted_calls_passes_for_some_minutes(
    channels, read, refused, monkeypatch
):
    now_s, renewed = [0.0], []
    monkeypatch.setattr(channels._rejections, "_clock_s", lambda: now_s[0])
    monkeypatch.setattr(channels._authorization, "renew", lambda: renewed.append(now_s[0]))
    assert read() == []
    for now_s[0] in range(0, 300, 30):
        error = refused("UNAUTHENTICATED", "token revoked", kind=QueryInterrupted)
        assert "token revoked" in str(error)
    now_s[0] = 300
    error = refused("UNAUTHENTICATED", "token revoked")
    assert "token revoked" in str(error)
    assert "credentials" in error.hint
    assert renewed == [*range(0, 300, 30), 300]


def test_an_unreadable_message_is_a_schema_error(spanner, wire, read):
    for message in (wire.message("text", metadata=wire.row_type()),
                    wire.message([], metadata=wire.row_type(), chunked=True)):  # fmt: skip
        spanner.on_stream = lambda *_, message=message: iter([message])
        with pytest.raises(SchemaError):
            read()
    with pytest.raises(SchemaError):
        SpannerResponse(b"\xff\xff", ResponseDecoder(ColumnTypesCache())).decode()


def test_what_a_message_takes_counts_the_copies_of_what_it_completes(stream, spanner, wire, tasks):
    begun = wire.message([], metadata=wire.row_type(), chunked=True)
    rest = wire.message(wire.heartbeat_row())
    spanner.on_stream = lambda *_: iter([begun, rest])

    async def run():
        query, found = stream.query(**ARGUMENTS), []
        while (size := await query.next_size()) is not None:
            response = await query.receive()
            assert response.size_bytes in {begun.ByteSize(), rest.ByteSize()}
            found.append((size, response.decode()[1]))
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
        from tidegate.producer.spanner.decoding.struct_rows import ColumnTypesCache, ResponseDecoder

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


def test_cancelling_from_another_thread_ends_a_silent_query(stream, spanner, tasks, beat):
    ended, asked, outcome = threading.Event(), threading.Event(), []

    def answer(_request, context):
        context.add_callback(ended.set)
        yield beat
        ended.wait(60)

    def read_on():
        try:
            for _ in received(query, tasks):
                asked.set()
        except QueryInterrupted as error:
            outcome.append(error.code)

    query = stream.query(**ARGUMENTS)  # that is cancelled before it began never begins
    query.cancel()
    assert list(decoded(query, tasks)) == []
    assert not any(hasattr(request, "sql") for request in spanner.requests)
    spanner.on_stream = answer
    query = stream.query(**ARGUMENTS)
    thread = threading.Thread(target=read_on)
    thread.start()
    assert asked.wait(30)
    query.cancel()
    thread.join(30)
    assert not thread.is_alive()
    assert outcome == ["CANCELLED"]
    assert ended.wait(30)


def places(channels):
    return [place.streams for place in channels._streams._places]


def test_places_on_a_channel_are_given_back_however_a_query_ends(
    spanner, channels, tasks, refused, beat
):
    stream = stream_of(channels)
    assert list(decoded(stream.query(**ARGUMENTS), tasks)) == []
    refused("ABORTED", "x", kind=QueryInterrupted)
    spanner.on_stream = lambda *_: iter([beat] * 9)
    assert len(list(decoded(stream.query(**ARGUMENTS), tasks))) == 9
    assert places(channels) == [0]
    query = stream.query(**ARGUMENTS)
    assert tasks.run(query.next_size) is not None
    for _ in range(2):
        query.cancel()
    tasks.run(lambda: asyncio.sleep(0))
    assert places(channels) == [0]
