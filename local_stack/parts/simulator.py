"""The Spanner simulator as a child process.

When it is ready it prints its addresses, one JSON line on standard output.  Its code is not
imported here.
"""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from tidegate.local_stack.errors import PartFailedError
from tidegate.local_stack.parts.ports import HOST
from tidegate.local_stack.parts.process import ChildProcess, ProcessSpec

READY_DEADLINE_S = 60.0


@dataclass(slots=True, kw_only=True)
class SpannerSimulator:
    """A simulator with its logs below `data_dir`, and its databases too if it keeps them."""

    data_dir: Path
    port: int
    control_port: int
    cancelled: threading.Event
    seed: int = 0
    stream_partitions: int = 4
    equal_timestamps: float = 0.0
    keeps_databases: bool = False
    """Whether a start on the same `data_dir` finds the databases of the last one."""
    process: ChildProcess | None = None
    address: str = ""
    control_address: str = ""

    @property
    def log(self) -> Path:
        """The file of its standard error."""
        return self.data_dir / "simulator.log"

    def start(self) -> None:
        """Start, and return when the simulator has printed its addresses."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "spanner_simulator", "--host", HOST]
        command += ["--port", str(self.port), "--control-port", str(self.control_port)]
        command += ["--seed", str(self.seed), "--stream-partitions", str(self.stream_partitions)]
        if self.equal_timestamps:
            command += ["--equal-timestamps", str(self.equal_timestamps)]
        if self.keeps_databases:
            command += ["--data", str(self.data_dir / "databases")]
        stdout = self.data_dir / "simulator.json"
        self.process = ChildProcess(
            ProcessSpec(name="the simulator", command=command, log=self.log, stdout=stdout),
            cancelled=self.cancelled,
        )
        self.process.start()
        self.process.wait_ready(
            lambda: stdout.read_bytes().endswith(b"\n"), deadline_s=READY_DEADLINE_S
        )
        self.address, self.control_address = _addresses(stdout.read_text())

    def stop(self) -> None:
        """Stop the simulator; its databases are lost unless it keeps them."""
        if self.process is not None:
            self.process.stop()


def _addresses(printed: str) -> tuple[str, str]:
    try:
        line = json.loads(printed.splitlines()[0])
        return str(line["grpc"]), str(line["control"])
    except (ValueError, KeyError, IndexError, TypeError):
        raise PartFailedError(
            f"the simulator printed {printed!r} instead of its addresses"
        ) from None
