from __future__ import annotations

import dataclasses
import json
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tidegate.spanner_simulator import Simulator, SimulatorConfig
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


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tidegate.spanner_simulator", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ask(control: str, path: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://{control}{path}", timeout=60) as reply:
        answer: dict[str, Any] = json.load(reply)
        return answer


def test_a_database_from_the_start_and_a_clock_that_stands_still(tmp_path: Path) -> None:
    schema = tmp_path / "schema.sql"
    schema.write_text(
        "CREATE TABLE A (K INT64) PRIMARY KEY (K); -- one\nCREATE CHANGE STREAM S FOR A;\n"
    )
    process = start(
        "--frozen-at", "2026-01-01T00:00:00Z", "--stream-partitions", "3",
        "--project", "p", "--instance", "inst", "--database", "bank", "--ddl-file", str(schema),
    )  # fmt: skip
    try:
        assert process.stdout is not None
        control = json.loads(process.stdout.readline())["control"]
        assert ask(control, "/health")["databases"] == ["projects/p/instances/inst/databases/bank"]
        assert (
            len(ask(control, "/stream-partitions?database=bank&stream=S")["stream_partitions"]) == 3
        )
        assert ask(control, "/clock")["now"].startswith("2026-01-01T00:00:00")
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()

    assert (process.returncode, output, errors) == (0, "", "")


@pytest.mark.parametrize(
    ("arguments", "schema", "message"),
    [
        (["--database", "1 bank"], "", "cannot create the database: Error parsing"),
        (["--database", "bank"], "CREATE TABLE", "cannot create the database: "),
        ([], "CREATE TABLE", "--ddl-file needs --database"),
        (["--frozen-at", "noon"], "", "frozen_at must be an RFC 3339 time"),
        (["--host", "no.such.host.invalid"], "", "cannot listen on no.such.host.invalid:0: "),
        (["--data", "/dev/null"], "", "cannot keep data in /dev/null: "),
    ],
)
def test_a_start_that_cannot_be_made_is_exit_code_2(
    tmp_path: Path, arguments: list[str], schema: str, message: str
) -> None:
    if schema:
        (tmp_path / "schema.sql").write_text(schema)
        arguments = [*arguments, "--ddl-file", str(tmp_path / "schema.sql")]
    done = CliRunner().invoke(app, arguments)

    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr


def test_the_help_has_an_example_and_every_setting() -> None:
    done = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200", "TERM": "dumb"})

    assert done.exit_code == 0
    assert "SPANNER_EMULATOR_HOST=127.0.0.1:9010 your-program" in done.stdout
    for setting in dataclasses.fields(SimulatorConfig):
        flag = {"data_directory": "data"}.get(setting.name, setting.name).replace("_", "-")
        assert f"--{flag}" in done.stdout


def test_a_database_of_an_earlier_run_keeps_its_dialect(tmp_path: Path) -> None:
    with Simulator(data_directory=tmp_path / "data") as simulator:
        simulator.create_database("bank", dialect="POSTGRESQL")
    done = CliRunner().invoke(app, ["--data", str(tmp_path / "data"), "--database", "bank"])

    assert done.exit_code == 2
    assert "bank is there, in the dialect POSTGRESQL" in done.stderr
