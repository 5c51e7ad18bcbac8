"""Faults of change stream queries, to the row, and holds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.cloud.spanner_v1 import types as spanner

from spanner_simulator.core.timestamps import format_us
from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.server.change_stream_query import serve_change_stream_query
from spanner_simulator.server.faults import Fault, FaultRule
from spanner_simulator.server.messages import plain_of

KINDS = ("data", "heartbeat", "children")


class Reading:
    """One query whose messages are collected as they come."""

    def __init__(self, rig: Any, request: Any, context: Any = None) -> None:
        session = rig.host.session(request.session)
        self.messages: list[Any] = []
        self._serving = serve_change_stream_query(rig.host, session, request, context)

    async def run(self) -> None:
        async for message in self._serving:
            self.messages.append(spanner.PartialResultSet.pb().FromString(message))

    @property
    def kinds(self) -> list[str]:
        found: list[str] = []
        for message in self.messages:
            for value in message.values:
                (fields,) = plain_of(value)  # type: ignore[misc]
                found += [kind for kind, part in zip(KINDS, fields, strict=True) if part]  # type: ignore[arg-type]
        return found


def ended(rig: Any) -> Any:
    """A query of a stream partition with five records that has ended."""
    session = rig.session()
    token = rig.database.streams.state("Bank").partitions.live[-1].token
    start = format_us(rig.now_us)
    for key in range(1, 6):
        rig.insert(session, key)
    rig.now_us += 10
    rig.database.streams.move("Bank", now_us=rig.now_us, token=token)
    rig.now_us += 10
    return rig.change_query(session, token, start=start)


async def reading(rig: Any, request: Any, context: Any = None) -> tuple[list[str], Code | None]:
    """The kinds of the rows of a query, and the code that it ended with."""
    one = Reading(rig, request, context)
    try:
        await asyncio.wait_for(one.run(), 20)
    except SpannerError as error:
        return one.kinds, error.code
    return one.kinds, None


def read(rig: Any, request: Any, context: Any = None) -> tuple[list[str], Code | None]:
    return asyncio.run(reading(rig, request, context))


DATA, END = ["data"], ["children"]


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (Fault(code=Code.ABORTED), ([], Code.ABORTED)),
        (Fault(when="after_rows", after_rows=3), (DATA * 3, Code.UNAVAILABLE)),
        (Fault(when="after_rows", after_rows=5), (DATA * 5, Code.UNAVAILABLE)),
        (Fault(when="after_rows", after_rows=6), (DATA * 5 + END, None)),
        (Fault(when="end"), (DATA * 5 + END, Code.UNAVAILABLE)),
        (Fault(kind="clean_end"), ([], None)),
        (Fault(kind="clean_end", when="after_rows", after_rows=2), (DATA * 2, None)),
        (Fault(kind="clean_end", when="end"), (DATA * 5, None)),
        (Fault(kind="slow", delay_ms=1), (DATA * 5 + END, None)),
        (Fault(kind="drop", when="after_rows", after_rows=1), (DATA, Code.UNAVAILABLE)),
    ],
)
def test_a_fault_strikes_at_its_row_and_once(rig, fault: Fault, expected: Any) -> None:
    request = ended(rig)
    rig.host.faults.add(FaultRule(fault=fault, stream="bank", method="ExecuteStreamingSql"))
    is_over = False

    async def move_time() -> None:
        while not is_over:
            rig.now_us += 500
            rig.host.clock.advance(500)
            await asyncio.sleep(0)

    async def scenario() -> tuple[list[str], Code | None]:
        nonlocal is_over
        moving = asyncio.create_task(move_time())
        found = await reading(rig, request)
        is_over = True
        await moving
        return found

    assert asyncio.run(scenario()) == expected
    assert read(rig, request) == (DATA * 5 + END, None)


def test_a_stall_lasts_until_it_is_released(rig) -> None:
    request = ended(rig)
    rule = rig.host.faults.add(
        FaultRule(fault=Fault(kind="stall", when="after_rows", after_rows=2))
    )

    async def scenario() -> list[list[str]]:
        one = Reading(rig, request)
        task = asyncio.create_task(one.run())
        await rig.until(lambda: len(one.kinds) == 2)
        for _ in range(50):
            rig.host.clock.advance(1_000_000)
            await asyncio.sleep(0)
        before = one.kinds
        rig.host.faults.clear(rule.number)
        await asyncio.wait_for(task, 20)
        return [before, one.kinds]

    assert asyncio.run(scenario()) == [DATA * 2, DATA * 5 + END]


def test_the_twenty_first_reader_is_refused(rig) -> None:
    token = rig.database.streams.state("Bank").partitions.live[-1].token
    request = rig.change_query(rig.session(), token)

    async def scenario() -> list[SpannerError]:
        tasks = [asyncio.create_task(Reading(rig, request).run()) for _ in range(21)]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED, timeout=20)
        for task in pending:
            task.cancel()
        return [error for one in done if isinstance(error := one.exception(), SpannerError)]

    (refusal,) = asyncio.run(scenario())
    assert refusal.code is Code.RESOURCE_EXHAUSTED
    assert rig.host.database("bank").readers == {}


def test_the_initial_query_meets_faults_too(rig) -> None:
    request = rig.change_query(rig.session(), None)
    fault = Fault(when="after_rows", after_rows=1)
    rig.host.faults.add(FaultRule(fault=fault))
    assert read(rig, request) == (END, Code.UNAVAILABLE)
    assert read(rig, request) == (END * 2, None)


def test_a_drop_cuts_the_call_s_own_connection(rig, monkeypatch) -> None:
    request, cut = ended(rig), []
    monkeypatch.setattr(rig.host.faults, "drop", cut.append)
    rig.host.faults.add(FaultRule(fault=Fault(kind="drop")))
    assert read(rig, request, "the call") == ([], Code.UNAVAILABLE)
    assert cut == ["the call"]
