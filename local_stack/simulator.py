"""The Spanner simulator as a child program, as anybody else would run it.

It says where it listens in one JSON line on its standard output when it is ready; nothing of its
code is imported here.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.local_stack.errors import PartFailedError
from tidegate.local_stack.ports import HOST
from tidegate.local_stack.process import ChildProcess, ProcessSpec

if TYPE_CHECKING:
    import threading
    from pathlib import Path

__all__ = ["SpannerSimulator"]

READY_DEADLINE_S = 60.0


@dataclass(slots=True, kw_only=True)
class SpannerSimulator:
    """A simulator that logs below `data_dir`; its databases live as long as the process."""

    data_dir: Path
    port: int
    control_port: int
    cancelled: threading.Event
    seed: int = 0
    stream_partitions: int = 4
    equal_timestamps: float = 0.0
    process: ChildProcess | None = None
    address: str = ""
    control_address: str = ""

    @property
    def log(self) -> Path:
        """What the simulator says."""
        return self.data_dir / "simulator.log"

    def start(self) -> None:
        """Start, and return when the simulator has said where it listens."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "tidegate.spanner_simulator", "--host", HOST]
        command += ["--port", str(self.port), "--control-port", str(self.control_port)]
        command += ["--seed", str(self.seed), "--stream-partitions", str(self.stream_partitions)]
        if self.equal_timestamps:
            command += ["--equal-timestamps", str(self.equal_timestamps)]
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
        """End the simulator; its databases are gone."""
        if self.process is not None:
            self.process.stop()


def _addresses(said: str) -> tuple[str, str]:
    try:
        line = json.loads(said.splitlines()[0])
        return str(line["grpc"]), str(line["control"])
    except (ValueError, KeyError, IndexError, TypeError):
        raise PartFailedError(f"the simulator said {said!r} and not where it listens") from None
