"""Whatever is sent, the answer is a reply or a status that blames the request, and life goes on."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, NoReturn

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spanner_simulator.server.transport.methods import METHODS, method_handlers

INSTANCE = "projects/p/instances/inst"
DATABASE = f"{INSTANCE}/databases/bank"
NEVER = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
FIELDS_MAX = 4
DEPTH_MAX = 5
PATIENCE_S = 0.03

CALLS = [(service, method) for service, methods in METHODS.items() for method in methods]
TEXTS = [
    "Accounts", "Id", "Balance", "Name", "Bank", INSTANCE, DATABASE, "projects/p", "inst2",
    "SELECT 1", "SELECT * FROM Accounts", "SELECT Id FROM Accounts WHERE Balance > @p",
    "INSERT INTO Accounts (Id) VALUES (1)", "UPDATE Accounts SET Balance = @p WHERE Id = 1",
    "DELETE FROM Accounts WHERE true", "SELECT (", "CREATE DATABASE fresh",
    "SELECT * FROM READ_Bank('2024-01-01T00:00:00Z', NULL, NULL, 1000)",
    "CREATE TABLE T (A INT64) PRIMARY KEY (A)", "DROP TABLE Accounts", "p", "1", "",
    f"{DATABASE}/operations/op", "op", "node_count", "labels.a:*",
]  # fmt: skip
LARGE = (-(2**63), -1, 0, 1, 2, 100, 2**31 - 1, 2**63 - 1)


class Aborted(Exception):
    pass


class Context:
    """As much of a call as the handlers use."""

    def __init__(self) -> None:
        self.code: grpc.StatusCode | None = None

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    async def abort(self, code: grpc.StatusCode, details: str, trailers: Any = ()) -> NoReturn:
        assert isinstance(details, str)
        self.code = code
        raise Aborted


def fill(draw: Any, message: Any, session: str, depth: int = 0) -> Any:
    """Some fields of a message, with values that mean something now and then."""
    fields = list(message.DESCRIPTOR.fields)
    if not fields or depth > DEPTH_MAX:
        return message
    chosen = draw(st.lists(st.sampled_from(fields), max_size=FIELDS_MAX, unique_by=id))
    named = message.DESCRIPTOR.fields_by_name
    for name in ("session", "database", "transaction", "key_set", "statements"):
        if depth == 0 and name in named and draw(st.integers(0, 3)):
            chosen.append(named[name])
    for field in chosen:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            continue
        if field.message_type is not None:
            where = getattr(message, field.name)
            if field.is_repeated:
                where = where.add()
            where.SetInParent()
            fill(draw, where, session, depth + 1)
            continue
        value = scalar(draw, field, session)
        if field.is_repeated:
            getattr(message, field.name).append(value)
        else:
            setattr(message, field.name, value)
    return message


def scalar(draw: Any, field: FieldDescriptor, session: str) -> Any:
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING if field.type == FieldDescriptor.TYPE_BYTES:
            return draw(st.binary(max_size=8) | st.sampled_from([b"rd.1.1.1", b"1-00000000"]))
        case FieldDescriptor.CPPTYPE_STRING if field.name == "session":
            return session
        case FieldDescriptor.CPPTYPE_STRING:
            texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=6)
            return draw(st.sampled_from(TEXTS) | texts)
        case FieldDescriptor.CPPTYPE_BOOL:
            return draw(st.booleans())
        case FieldDescriptor.CPPTYPE_DOUBLE | FieldDescriptor.CPPTYPE_FLOAT:
            return draw(st.floats())
        case FieldDescriptor.CPPTYPE_ENUM:
            return draw(st.sampled_from([0, 1, 2, 3, 77]))
        case FieldDescriptor.CPPTYPE_INT32 | FieldDescriptor.CPPTYPE_UINT32:
            return draw(st.sampled_from([one for one in LARGE if 0 <= one < 2**31]))
        case FieldDescriptor.CPPTYPE_UINT64:
            return draw(st.sampled_from([one for one in LARGE if one >= 0]))
        case _:
            return draw(st.sampled_from(LARGE))


def status_of(rig: Any, service: str, method: str, request: bytes) -> grpc.StatusCode | None:
    """The status of one call; None for OK, and for a call that is still waiting."""
    (handlers,) = method_handlers(rig.host)
    handler = handlers.service(SimpleNamespace(method=f"/{service}/{method}"))
    context = Context()

    async def call() -> None:
        if handler.response_streaming:
            async for reply in handler.unary_stream(request, context):
                assert isinstance(reply, bytes)
        else:
            assert isinstance(await handler.unary_unary(request, context), bytes)

    async def patient() -> None:
        with suppress(Aborted, TimeoutError):
            await asyncio.wait_for(call(), PATIENCE_S)

    asyncio.run(patient())
    return context.code


@pytest.mark.parametrize(("service", "method"), CALLS)
@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_requests_that_make_little_sense(make_rig, service: str, method: str, data) -> None:
    rig = make_rig()
    session = rig.session(multiplexed=data.draw(st.booleans()))
    request_type = METHODS[service][method]
    raw = request_type.pb() if hasattr(request_type, "pb") else request_type
    request = fill(data.draw, raw(), session)
    assert status_of(rig, service, method, request.SerializeToString()) not in NEVER
