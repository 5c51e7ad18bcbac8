"""A simulator in a process of its own, as the benchmarks of it need one: its CPU and its memory.

Run with `--load ROWS` it fills a change stream through the core, so that filling takes no time from
what is measured; it prints its address when it is ready and ends with its standard input.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from spanner_simulator import SimulatorConfig
from spanner_simulator.control.verbs import Verbs
from spanner_simulator.core.rows.mutations import Write
from spanner_simulator.core.timestamps import format_us
from spanner_simulator.core.values import Plain
from spanner_simulator.server.host import Host, HostedDatabase
from spanner_simulator.server.provision import create_database
from spanner_simulator.simulator import serve

DATABASE = "projects/bench/instances/bench/databases/bench"
TABLE = (
    "CREATE TABLE AccountBalance (AccountId STRING(36) NOT NULL, LastUpdate TIMESTAMP,"
    " Balance INT64, Note STRING(MAX)) PRIMARY KEY (AccountId)"
)
COLUMNS = ("AccountId", "LastUpdate", "Balance", "Note")
STREAM = "CREATE CHANGE STREAM {} FOR AccountBalance OPTIONS (value_capture_type = 'NEW_ROW'{})"


@dataclass
class SimulatorProcess:
    """The child; `address` takes gRPC.

    `token` is the only stream partition of the first change stream, `start` its beginning.
    """

    child: subprocess.Popen[str]
    address: str
    token: str
    start: str

    @classmethod
    def start(cls, *, load: int = 0, streams: int = 1, mode: str = "immutable") -> Self:
        """Start one and wait until it is filled."""
        command = [sys.executable, __file__, "--load", str(load), "--streams", str(streams)]
        child = subprocess.Popen(
            [*command, "--mode", mode], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        if child.stdout is None:
            raise RuntimeError("the simulator has no standard output")
        return cls(child, *child.stdout.readline().split())

    def stop(self) -> None:
        """End it and wait."""
        self.child.communicate()

    def cpu_s(self) -> float:
        """CPU seconds that it has used, user and system."""
        return cpu_s_of(self.child.pid)

    def memory_mb(self) -> float:
        """Resident megabytes."""
        return resident_mb(self.child.pid)


def cpu_s_of(pid: int) -> float:
    """CPU seconds that a process has used, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    """Resident megabytes of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def row(number: int) -> list[Plain]:
    """The values of a row whose change record has about 600 bytes on the wire."""
    return [f"account-{number:012d}", "2022-09-27T12:30:00.123456Z", str(number), "x" * 130]


def machine() -> str:
    """What the figures were taken on."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(": ")[2]
    version = ".".join(str(part) for part in sys.version_info[:2])
    load = os.getloadavg()[0]
    return f"{os.cpu_count()} cores of {model}, Python {version}; load average {load:.1f}"


def main() -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--load", type=int, default=0)
    parser.add_argument("--streams", type=int, default=1)
    parser.add_argument("--mode", choices=("immutable", "mutable"), default="immutable")
    chosen = parser.parse_args()

    async def fill(host: Host) -> None:
        extra = ", partition_mode = 'MUTABLE_KEY_RANGE'" if chosen.mode == "mutable" else ""
        streams = [STREAM.format(f"S{number}", extra) for number in range(chosen.streams)]
        await create_database(
            host,
            project="bench",
            instance="bench",
            database="bench",
            statements=[TABLE, *streams],
            dialect="GOOGLE_STANDARD_SQL",
        )
        filled.append(host.databases[DATABASE])
        database = filled[0].database
        for number in range(chosen.load):
            write = Write("insert", "AccountBalance", COLUMNS, (row(number),))
            transaction = database.begin(tag="app=banking,env=prod")
            database.commit(transaction, (write,), now_us=host.now_us())

    def say(address: str) -> None:
        (one,) = filled[0].database.streams.state("S0").partitions.live
        print(address, one.token, format_us(one.start_us), flush=True)

    filled: list[HostedDatabase] = []

    async def run() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        threading.Thread(
            target=lambda: (sys.stdin.read(), loop.call_soon_threadsafe(stop.set)), daemon=True
        ).start()
        await serve(
            SimulatorConfig(stream_partitions=1),
            Verbs(),
            lambda address, _: say(address),
            stop,
            prepare=fill,
        )

    asyncio.run(run())


if __name__ == "__main__":
    main()
