from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from google.cloud.spanner_v1 import types as spanner

from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.server.faults import Fault
from spanner_simulator.server.messages import plain_of
from spanner_simulator.server.transport.faulty_calls import faulty_reply, faulty_stream

CONTEXT = SimpleNamespace(peer=lambda: "ipv4:127.0.0.1:1")


parsed = spanner.PartialResultSet.pb().FromString


def stream_of(*rows: int):
    """Messages of one column: `rows` values in each."""

    async def replies():
        for index, count in enumerate(rows):
            message = spanner.PartialResultSet.pb()(resume_token=b"%d" % index)
            if index == 0:
                message.metadata.row_type.fields.add(name="a")
            for row in range(count):
                message.values.add(string_value=f"{index}.{row}")
            yield message.SerializeToString()

    return replies()


async def gather(rig, fault: Fault, found: list[Any], *rows: int) -> None:
    async for one in faulty_stream(rig.host, fault, CONTEXT, stream_of(*rows)):
        found.append(parsed(one))  # noqa: PERF401  # seen while it grows


def run_stream(rig, fault: Fault, *rows: int):
    """The messages until the end, and the error that it was."""
    found = []
    with pytest.raises(SpannerError) as caught:
        rig.run(gather(rig, fault, found, *rows))
    return found, caught.value


def values(messages):
    return [plain_of(value) for one in messages for value in one.values]


@pytest.mark.parametrize(
    ("fault", "sent"),
    [
        (Fault(when="open"), []),
        (Fault(when="after_rows", after_rows=3), ["0.0", "0.1", "1.0"]),
        (Fault(when="after_rows", after_rows=2), ["0.0", "0.1"]),
        (Fault(when="after_rows", after_rows=99), ["0.0", "0.1", "1.0", "1.1"]),
        (Fault(when="end"), ["0.0", "0.1", "1.0", "1.1"]),
    ],
)
def test_a_status_comes_when_it_is_to_come(rig, fault: Fault, sent: list[str]) -> None:
    messages, error = run_stream(rig, fault, 2, 2)
    assert values(messages) == sent
    assert error.code is Code.UNAVAILABLE


def test_a_stall_goes_on_when_it_is_released(rig) -> None:
    fault = Fault(kind="stall", when="after_rows", after_rows=1)

    async def act():
        found = []
        task = asyncio.create_task(gather(rig, fault, found, 2, 1))
        for _ in range(5):
            await asyncio.sleep(0)
        before = values(found)
        fault.released.set()
        await task
        return before, found

    before, found = rig.run(act())
    assert before == ["0.0"]
    assert values(found) == ["0.0", "0.1", "1.0"]
    assert [one.resume_token for one in found] == [b"", b"0", b"1"]


def test_a_dropped_connection_is_cut(rig, monkeypatch) -> None:
    cut = []
    monkeypatch.setattr(rig.host.faults, "drop", cut.append)
    _, error = run_stream(rig, Fault(kind="drop"), 1)
    assert cut == [CONTEXT]
    assert error.code is Code.UNAVAILABLE


@pytest.mark.parametrize(("when", "done"), [("open", 0), ("end", 1)])
def test_a_call_with_one_reply_has_or_has_not_been_done(rig, when: str, done: int) -> None:
    calls = []

    async def answer() -> bytes:
        calls.append(1)
        return b"reply"

    with pytest.raises(SpannerError):
        rig.run(faulty_reply(rig.host, Fault(when=when), CONTEXT, answer))  # type: ignore[arg-type]
    assert len(calls) == done


def test_a_released_stall_and_a_clean_end_of_one_reply(rig) -> None:
    async def answer() -> bytes:
        return b"reply"

    stall = Fault(kind="stall")
    stall.released.set()
    run = rig.run
    assert run(faulty_reply(rig.host, stall, CONTEXT, answer)) == b"reply"
    assert run(faulty_reply(rig.host, Fault(kind="clean_end"), CONTEXT, answer)) == b""


def test_slow_waits_in_simulated_time(rig) -> None:
    fault = Fault(kind="slow", delay_ms=10)

    async def act():
        found = []
        task = asyncio.create_task(gather(rig, fault, found, 1, 1))
        counts = []
        for _ in range(2):
            for _ in range(5):
                await asyncio.sleep(0)
            counts.append(len(found))
            rig.host.clock.advance(10_000)
            for _ in range(20):
                await asyncio.sleep(0.001)
        await task
        return counts, len(found)

    assert rig.run(act()) == ([0, 1], 2)
