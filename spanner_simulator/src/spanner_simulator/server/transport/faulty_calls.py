"""Calls with an injected fault: the messages before it, and its effect.

A stream is cut at a row by cutting the message that holds it.  The part that is sent then has no
resume token, so a client that resumes asks for those rows again, as it must with the real service.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

from google.cloud.spanner_v1 import types as spanner

from spanner_simulator.server.change_faults import strike
from spanner_simulator.server.faults import Fault
from spanner_simulator.server.host import Host
from spanner_simulator.server.messages import Message


async def faulty_reply(
    host: Host, fault: Fault, context: Any, answer: Callable[[], Awaitable[bytes]]
) -> bytes:
    """A call with one reply.  Except for faults at the open, it has already been carried out."""
    if fault.kind == "slow":
        await _delay(host, fault)
        return await answer()
    reply = b"" if fault.when == "open" else await answer()
    if await strike(host, fault, context):
        return b""
    return await answer() if fault.when == "open" else reply


async def faulty_stream(
    host: Host, fault: Fault, context: Any, replies: AsyncGenerator[bytes, None]
) -> AsyncGenerator[bytes, None]:
    """A call whose replies are PartialResultSets."""
    async with aclosing(replies):
        if fault.kind == "slow":
            async for message in replies:
                await _delay(host, fault)
                yield message
            return
        if fault.when == "open" and await strike(host, fault, context):
            return
        is_due = fault.when != "open"
        left = fault.after_rows
        columns = 0
        async for message in replies:
            if fault.when != "after_rows" or not is_due:
                yield message
                continue
            part = spanner.PartialResultSet.pb().FromString(message)
            columns = columns or len(part.metadata.row_type.fields)
            rows = len(part.values) // max(1, columns)
            if rows < left or part.chunked_value:
                left = max(1, left - rows)
                yield message
                continue
            yield _first_rows(part, left * columns)
            if await strike(host, fault, context):
                return
            is_due = False
            yield _other_rows(part, left * columns)
        if is_due:
            await strike(host, fault, context)


def _first_rows(part: Message, count: int) -> bytes:
    head = spanner.PartialResultSet.pb()()
    head.CopyFrom(part)
    del head.values[count:]
    for field in ("resume_token", "stats", "precommit_token"):
        head.ClearField(field)
    serialised: bytes = head.SerializeToString()
    return serialised


def _other_rows(part: Message, count: int) -> bytes:
    tail = spanner.PartialResultSet.pb()()
    tail.CopyFrom(part)
    del tail.values[:count]
    tail.ClearField("metadata")
    serialised: bytes = tail.SerializeToString()
    return serialised


async def _delay(host: Host, fault: Fault) -> None:
    await host.clock.sleep_until(host.now_us() + fault.delay_ms * 1000)
