"""How many single-row commits a second the simulator takes through gRPC.

    python benchmarks/simulator_commits.py [--commits 20000] [--clients 32] [--record]

Concurrent raw clients (coroutines on a few channels of one process) each commit one insert after
the other, single use. CPU is that of the simulator's process, user and system.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Any

import grpc
from google.cloud.spanner_v1 import types as spanner
from raw_client import SPANNER, RawClient
from simulator_process import COLUMNS, SimulatorProcess, machine, row
from simulator_report import record

HEADER = (
    "| change streams | clients | commits | commits/s | simulator CPU us a commit"
    " | commits per CPU second |"
)
CHANNELS = 4


def serialised(session: str, number: int) -> bytes:
    """A Commit of one insert; made before the clock runs."""
    request = spanner.CommitRequest.pb()(session=session)
    request.single_use_transaction.read_write.SetInParent()
    insert = request.mutations.add().insert
    insert.table = "AccountBalance"
    insert.columns.extend(COLUMNS)
    insert.values.add().extend(row(number))
    return bytes(request.SerializeToString())


async def commit_all(address: str, requests: list[bytes], clients: int) -> float:
    """Commit everything; the seconds that it took."""
    # Channels to one address share a connection unless they differ in an option.
    channels = [
        grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        for _ in range(CHANNELS)
    ]
    calls: list[Any] = [channel.unary_unary(f"{SPANNER}Commit") for channel in channels]
    waiting = iter(requests)

    async def work(number: int) -> None:
        call = calls[number % CHANNELS]
        for request in waiting:
            await call(request)

    began = time.perf_counter()
    await asyncio.gather(*(work(number) for number in range(clients)))
    took_s = time.perf_counter() - began
    for channel in channels:
        await channel.close()
    return took_s


def measure(streams: int, commits: int, clients: int) -> str:
    """One line of the table."""
    process = SimulatorProcess.start(streams=streams)
    try:
        session = RawClient(process.address).session
        warm = [serialised(session, number) for number in range(commits, commits + 500)]
        asyncio.run(commit_all(process.address, warm, clients))
        requests = [serialised(session, number) for number in range(commits)]
        cpu_s = process.cpu_s()
        took_s = asyncio.run(commit_all(process.address, requests, clients))
        cpu_s = process.cpu_s() - cpu_s
    finally:
        process.stop()
    return (
        f"| {streams} | {clients} | {commits:,} | {commits / took_s:,.0f}"
        f" | {cpu_s / commits * 1e6:.0f} | {commits / cpu_s:,.0f} |"
    )


def main() -> None:
    """Measure, print, record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--commits", type=int, default=20_000)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--record", action="store_true", help="write the results file")
    chosen = parser.parse_args()
    lines = [HEADER, "|" + " --- |" * 6]
    lines += [measure(streams, chosen.commits, chosen.clients) for streams in (1, 3)]
    text = "\n".join(lines)
    print(text)
    if chosen.record:
        command = (
            f"python benchmarks/simulator_commits.py --commits {chosen.commits}"
            f" --clients {chosen.clients}"
        )
        record("Commits", command, f"{text}\n\n{NOTES}", machine())


NOTES = "The clients share the machine with the simulator and use about as much CPU as it does."

if __name__ == "__main__":
    main()
