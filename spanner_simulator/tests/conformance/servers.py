"""The simulator that the programs are run against, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

SEED = 5


class ServerFailedError(Exception):
    """The simulator did not start, or has ended."""


@dataclass(frozen=True, slots=True)
class Server:
    """Its addresses."""

    grpc: str
    control: str


@contextmanager
def simulator() -> Iterator[Server]:
    """Start it, and stop it at the end of the block."""
    command = [sys.executable, "-m", "spanner_simulator", "--seed", str(SEED)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            line = child.stdout.readline() if child.stdout else ""
            if not line:
                raise ServerFailedError("the simulator did not start (see above)")
            addresses = json.loads(line)
            yield Server(addresses["grpc"], addresses["control"])
            if child.poll() is not None:
                raise ServerFailedError(
                    f"the simulator has ended with exit code {child.returncode}"
                )
        finally:
            child.terminate()
