"""What the programs are run against: the simulator, or Google's emulator where it is installed."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from differential.emulator import ABSENT, find_emulator

START_TIMEOUT_S = 60
SEED = 5


class ServerFailedError(Exception):
    """What the programs should have been run against is not there, or has ended."""


@dataclass(frozen=True, slots=True)
class Server:
    """Where it listens; `control` is empty for a server without a control port."""

    grpc: str
    control: str = ""


@contextmanager
def simulator() -> Iterator[Server]:
    """The simulator in a process of its own."""
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


@contextmanager
def emulator() -> Iterator[Server]:
    """Google's emulator: named by SPANNER_EMULATOR_PROGRAM, or beside `gcloud`."""
    program = find_emulator()
    if program is None:
        raise ServerFailedError(ABSENT)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    life = "--override_change_stream_partition_token_alive_seconds=3"
    with subprocess.Popen(
        [str(program), "--host_port", address, life], stderr=subprocess.DEVNULL
    ) as child:
        try:
            _wait_for(address, child)
            yield Server(address)
        finally:
            child.terminate()


def _wait_for(address: str, child: subprocess.Popen[bytes]) -> None:
    host, _, port = address.partition(":")
    deadline = time.monotonic() + START_TIMEOUT_S
    while child.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise ServerFailedError("Google's emulator did not start")
