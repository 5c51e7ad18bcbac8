"""What many readers hold while Kafka takes nothing: their memory beside the byte budget.

A gRPC server in another process sends messages of 4 MB on each stream as fast as they are read; the
readers deliver, and nothing is released.  That is a worker whose broker has stopped.

    memory, backlog    each query's first message is large already, as in a catch-up
    memory, silent     all queries wait after a heartbeat, then all get large messages at once

The base is a process with all queries open, after a heartbeat on each.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import closing
from typing import Any

import psutil

from benchmarks.measuring import MIB, Child, memory_bytes
from benchmarks.producer.memory_fleet import table_encoding
from benchmarks.producer.responses import (
    START_NS,
    STREAM,
    TABLE,
    Case,
    heartbeat_response,
    large_response,
    responses,
)
from benchmarks.producer.source import started
from tidegate.producer.core.events import QueryFailed, RecordsRead
from tidegate.producer.description import GOOGLE_SQL, IMMUTABLE_KEY_RANGE
from tidegate.producer.driver.byte_budget import ByteBudget
from tidegate.producer.driver.reader import PartitionReader
from tidegate.producer.driver.runtime import TaskThread
from tidegate.producer.spanner.channel import SpannerChannels
from tidegate.producer.spanner.forms import form_of
from tidegate.producer.spanner.stream import SpannerChangeStream
from tidegate.producer.translation.translator import Translator

MEMORY = {"memory, backlog": 1_000, "memory, silent": 1_000}
"""How many readers."""

_DATABASE = "projects/p/instances/i/databases/d"
_MESSAGE_BYTES = 4 * MIB
_BUDGET_BYTES = 64 * MIB
_LOOK_EVERY_S = 0.02
_PATIENCE_S = 240.0


def measure_memory(name: str, *, readers: int = 0, settle_s: float = 10.0) -> dict[str, float]:
    """Return the base and the most above it in MiB, the latter in budgets too, and what was taken.

    Ends when the process has not grown for `settle_s`.
    """
    readers = readers or MEMORY[name]
    base = _peak("idle", readers, settle_s)["most_mib"]
    found = _peak(name.removeprefix("memory, "), readers, settle_s)
    above = found["most_mib"] - base
    return {
        "base_mib": base,
        "above_base_mib": above,
        "above_base_budgets": above * MIB / _BUDGET_BYTES,
        "taken_mib": found["taken_mib"],
    }


def _peak(kind: str, readers: int, settle_s: float) -> dict[str, float]:
    """Run both processes; return the readers' largest size and the bytes that they took."""
    with (
        closing(Child(__name__, "serve", kind)) as server,
        closing(Child(__name__, "read", server.line(), readers, kind)) as client,
    ):
        process = psutil.Process(client.pid)
        client.line()  # all queries are open
        server.ask("go")
        most, grown_at = 0, time.monotonic()
        give_up_at = grown_at + _PATIENCE_S
        while time.monotonic() < min(grown_at + settle_s, give_up_at):
            size = process.memory_info().rss
            if size > most:
                most, grown_at = size, time.monotonic()
            time.sleep(_LOOK_EVERY_S)
        found: dict[str, float] = json.loads(client.ask("report"))
        return found


def main() -> None:
    """Be one of the two processes."""
    match sys.argv[1:]:
        case ["serve", kind]:
            asyncio.run(_serve(kind))
        case ["read", address, readers, kind]:
            _read(address, int(readers), kind)


async def _serve(kind: str) -> None:
    metadata, large = responses(Case(1, 1), 0)[0], large_response(_MESSAGE_BYTES)
    go = asyncio.Event()

    async def stream(_request: Any, _context: Any) -> AsyncIterator[bytes]:
        if kind == "backlog":
            yield metadata + large  # one message: the fields of two add up
        else:
            yield metadata
            yield heartbeat_response(START_NS)
            await go.wait()
        while kind != "idle":
            yield large
        await asyncio.Event().wait()

    server = await started({"ExecuteStreamingSql": stream}, [("grpc.max_send_message_length", -1)])
    await asyncio.to_thread(sys.stdin.readline)
    go.set()
    print("ok", flush=True)
    await server.wait_for_termination()


def _read(address: str, readers: int, kind: str) -> None:
    tasks = TaskThread()
    channels = SpannerChannels(database=_DATABASE, emulator_host=address)
    stream = SpannerChangeStream(channels, form_of(GOOGLE_SQL, IMMUTABLE_KEY_RANGE, STREAM))
    budget = ByteBudget(_BUDGET_BYTES, tasks=tasks)
    translator = Translator({TABLE.name: table_encoding()}, change_stream=STREAM)
    held: list[RecordsRead] = []
    begun: set[int] = set()

    def deliver(output: Any) -> None:
        if isinstance(output, QueryFailed):
            os.write(2, f"{output.error}\n".encode())
            os._exit(1)
        if isinstance(output, RecordsRead):
            if kind != "backlog" and output.query_id not in begun:  # the heartbeat
                budget.release([(output.token, output.size_bytes)])
            else:
                held.append(output)
            begun.add(output.query_id)

    for number in range(readers):
        PartitionReader(
            stream,
            translator,
            token=f"token-{number}",
            query_id=number,
            start_ns=START_NS,
            heartbeat_ms=1_000,
            deliver=deliver,
            budget=budget,
            tasks=tasks,
        ).start()
    while kind != "backlog" and len(begun) < readers:
        time.sleep(0.1)
    print("open", flush=True)
    sys.stdin.readline()
    found = {"most_mib": memory_bytes("VmHWM") / MIB, "taken_mib": budget.taken / MIB}
    print(json.dumps(found), flush=True)
    os._exit(0)
