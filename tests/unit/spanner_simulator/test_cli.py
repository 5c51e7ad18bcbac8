from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest
from typer.testing import CliRunner

from tidegate.spanner_simulator.cli import app


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_line_when_ready_and_a_clean_end(number: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tidegate.spanner_simulator", "--equal-timestamps", "0.5"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        addresses = json.loads(process.stdout.readline())
        with urllib.request.urlopen(f"http://{addresses['control']}/health", timeout=60) as reply:
            assert json.load(reply)["status"] == "ok"
        process.send_signal(number)
        output, errors = process.communicate(timeout=60)
    finally:
        process.kill()

    assert sorted(addresses) == ["control", "grpc"]
    assert (process.returncode, output, errors) == (0, "", "")


@pytest.mark.parametrize("flag", ["--port", "--control-port"])
def test_a_taken_port_is_one_line_and_exit_code_2(flag: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = CliRunner().invoke(app, [flag, port])

    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        f"cannot listen on 127.0.0.1:{port}: the address is in use; choose another port"
    ]


@pytest.mark.parametrize(
    "arguments", [["--equal-timestamps", "2"], ["--stream-partitions", "0"], ["--bogus"]]
)
def test_a_flag_that_makes_no_sense_is_exit_code_2(arguments: list[str]) -> None:
    done = CliRunner().invoke(app, arguments)

    assert done.exit_code == 2
    assert arguments[0] in done.stderr
