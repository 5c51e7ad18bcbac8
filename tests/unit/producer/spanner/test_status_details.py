"""What a failed call's status says: a session that is gone, and answers that are not gRPC's."""

from base64 import b64encode
from datetime import UTC, datetime

import grpc
import pytest
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import ErrorInfo, ResourceInfo, RetryInfo
from google.rpc.status_pb2 import Status

from tidegate.producer.spanner.call import RETRY_AFTER_HEADER, CallError
from tidegate.producer.spanner.channel import rpc_error
from tidegate.producer.spanner.status_details import (
    DETAILS_TRAILER,
    asked_pause_us,
    is_lost_session,
    is_rejection,
    is_web_page,
)

NOT_FOUND = grpc.StatusCode.NOT_FOUND
SESSION, DATABASE = "google.spanner.v1.Session", "google.spanner.admin.database.v1.Database"


class Failed(grpc.RpcError):
    def __init__(self, code, details="", trailers=()):
        self.code = lambda: code
        self.details = lambda: details
        self.trailing_metadata = lambda: trailers


def status(*resource_types, code=5):
    """A serialised status whose details name resources, after one of another kind."""
    packed = [Any(), Any()]
    packed[0].Pack(ErrorInfo(reason="WHY"))
    packed[1].type_url = "type.googleapis.com/google.rpc.Unknown"
    for one in resource_types:
        packed.append(Any())
        packed[-1].Pack(ResourceInfo(resource_type=one, resource_name="n"))
    return Status(code=code, message="m", details=packed).SerializeToString()


@pytest.mark.parametrize(
    "details",
    [
        "Session not found: projects/p/instances/i/databases/d/sessions/s",
        "Session was not found",
        "Session was concurrently deleted",
        "Session was concurrently deleted: projects/p/instances/i/databases/d/sessions/s",
        "The session has expired.",
        "Requested entity was not found: projects/p/instances/i/databases/d/sessions/s",
        "SESSION DELETED",
    ],
)
def test_a_session_that_is_gone_in_any_words(details):
    assert is_lost_session(Failed(NOT_FOUND, details))
    assert not is_lost_session(Failed(grpc.StatusCode.INVALID_ARGUMENT, details))
    # What the status names counts before its words.
    other = [(DETAILS_TRAILER, status(f"type.googleapis.com/{DATABASE}"))]
    assert not is_lost_session(Failed(NOT_FOUND, details, other))


@pytest.mark.parametrize(
    "details",
    [
        "",
        "Database not found: projects/p/instances/i/databases/session",
        "Database not found: projects/p/instances/session/databases/d",
        "Database not found: session",
        "Change Stream not found: Session",
        "Instance not found: projects/p/instances/user-session",
        "Table not found: sessions",
        "No obsession",
    ],
)
def test_what_else_is_not_found(details):
    assert not is_lost_session(Failed(NOT_FOUND, details))
    for kind in (SESSION, f"type.googleapis.com/{SESSION}"):
        data = status(kind)
        for value in (data, b64encode(data).decode(), b64encode(data).decode().rstrip("=")):
            assert is_lost_session(
                Failed(NOT_FOUND, details, [("a", "b"), (DETAILS_TRAILER, value)])
            )


@pytest.mark.parametrize("damaged", [b"\xff\xff", "§", "AAA", b""])
def test_details_that_cannot_be_read_are_left_out(damaged):
    trailers = [(DETAILS_TRAILER, damaged)]
    assert is_lost_session(Failed(NOT_FOUND, "Session not found", trailers))
    assert not is_lost_session(Failed(NOT_FOUND, "Database not found", trailers))


def retry_info(**duration):
    packed = [Any(), Any()]
    packed[0].Pack(ErrorInfo(reason="WHY"))
    packed[1].Pack(RetryInfo(retry_delay=Duration(**duration)))
    return Status(code=8, message="m", details=packed).SerializeToString()


def test_how_long_the_service_wants_to_be_left_alone():
    exhausted = grpc.StatusCode.RESOURCE_EXHAUSTED
    for duration, pause_us in (
        ({"seconds": 7, "nanos": 250_000_000}, 7_250_000),
        ({"nanos": 1_500}, 1),
        ({}, 0),
        ({"seconds": -3}, 0),
        ({"seconds": 3_600}, 60_000_000),
    ):
        data = retry_info(**duration)
        for value in (data, b64encode(data).decode(), b64encode(data).decode().rstrip("=")):
            failed = Failed(exhausted, "quota", [(DETAILS_TRAILER, value)])
            assert asked_pause_us(failed) == pause_us
            assert rpc_error(failed, what="read").pause_us == pause_us
    assert asked_pause_us(Failed(exhausted, "quota", [(DETAILS_TRAILER, status(SESSION))])) == 0
    assert asked_pause_us(Failed(exhausted, "quota")) == 0
    now = datetime(2026, 3, 1, 12, tzinfo=UTC)
    for header, pause_us in (("9", 9_000_000), ("Sun, 01 Mar 2026 12:00:05 GMT", 5_000_000),
                             ("soon", 0), ("7200", 60_000_000)):  # fmt: skip
        page = CallError(exhausted, "HTTP status 429", trailers={RETRY_AFTER_HEADER: header})
        assert asked_pause_us(page, now) == pause_us


def test_which_answers_a_fresh_token_may_change():
    page = CallError(grpc.StatusCode.PERMISSION_DENIED, "HTTP status 403", is_web_page=True)
    unary = Failed(grpc.StatusCode.UNIMPLEMENTED, "Received http2 header with status: 404")
    for error in (page, unary):
        assert is_web_page(error)
        assert is_rejection(error)
    assert is_rejection(Failed(grpc.StatusCode.UNAUTHENTICATED))
    assert is_rejection(CallError(grpc.StatusCode.UNAUTHENTICATED, "no"))
    denied = CallError(grpc.StatusCode.PERMISSION_DENIED, "no")
    assert not is_web_page(denied)
    assert not is_rejection(denied)
    assert not is_rejection(Failed(grpc.StatusCode.UNIMPLEMENTED, "no such method"))
