from __future__ import annotations

import contextlib
import dataclasses
import json
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from spanner_simulator import Simulator, SimulatorConfig
from spanner_simulator.cli import app

# Where a flag has another name than its setting.
_FLAGS = {"data_directory": "data", "churn_mean_life_ms": "churn"}


@contextlib.contextmanager
def running(
    *arguments: str,
    command: tuple[str, ...] = ("-m", "spanner_simulator"),
    number: int = signal.SIGTERM,
    output: str = "",
) -> Iterator[dict[str, str]]:
    """The addresses of a process of its own; a signal ends it, with nothing but that output."""
    process = subprocess.Popen(
        [sys.executable, *command, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())
        process.send_signal(number)
        written = process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, *written) == (0, output, "")


def ask(control: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(f"http://{control}{path}", data=data, timeout=60) as reply:
        answer: dict[str, Any] = json.load(reply)
        return answer


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_line_when_ready_and_a_clean_end(number: int) -> None:
    with running("--equal-timestamps", "0.5", number=number) as addresses:
        assert ask(addresses["control"], "/health")["status"] == "ok"
        assert sorted(addresses) == ["control", "grpc"]


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
    "arguments",
    [
        *([f"--{flag}", "0"] for flag in ("stream-partitions", "churn", "churn-live-max")),
        *(["--equal-timestamps", "2"], ["--bogus"]),
    ],
)
def test_a_flag_that_makes_no_sense_is_exit_code_2(arguments: list[str]) -> None:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2
    assert arguments[0] in done.stderr


def test_a_churning_database_from_the_start_and_a_clock_that_stands_still(tmp_path: Path) -> None:
    schema = tmp_path / "schema.sql"
    schema.write_text(
        "CREATE TABLE A (K INT64) PRIMARY KEY (K); -- one\nCREATE CHANGE STREAM S FOR A;\n"
    )
    with running(
        "--frozen-at", "2026-01-01T00:00:00Z", "--stream-partitions", "3",
        "--churn", "1000", "--churn-live-max", "3",
        "--project", "p", "--instance", "inst", "--database", "bank", "--ddl-file", str(schema),
    ) as addresses:  # fmt: skip
        control = addresses["control"]
        path = "/stream-partitions?database=bank&stream=S"
        assert ask(control, "/health")["databases"] == ["projects/p/instances/inst/databases/bank"]
        assert len(ask(control, path)["stream_partitions"]) == 3
        assert ask(control, "/clock")["now"].startswith("2026-01-01T00:00:00")
        ask(control, "/advance", {"by_ms": 60_000})
        assert len(ask(control, f"{path}&ended=true")["stream_partitions"]) > 50
        assert len(ask(control, path)["stream_partitions"]) <= 3


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
        flag = _FLAGS.get(setting.name, setting.name).replace("_", "-")
        assert f"--{flag}" in done.stdout


def test_a_database_of_an_earlier_run_keeps_its_dialect(tmp_path: Path) -> None:
    with Simulator(data_directory=tmp_path / "data") as simulator:
        simulator.create_database("bank", dialect="POSTGRESQL")
    done = CliRunner().invoke(app, ["--data", str(tmp_path / "data"), "--database", "bank"])
    assert done.exit_code == 2
    assert "bank exists already, in the dialect POSTGRESQL" in done.stderr


# What takes long to import, and what none of a plain start needs.
_HEAVY = ["google.cloud.spanner_v1.client", "requests", "opentelemetry", "duckdb", "sqlglot"]
_START = f"""
import atexit, sys
from spanner_simulator import cli
atexit.register(lambda: print([name for name in {_HEAVY} if name in sys.modules]))
cli.main()
"""


def test_a_start_with_a_schema_loads_neither_clients_nor_the_sql_engine(tmp_path: Path) -> None:
    schema = tmp_path / "schema.sql"
    schema.write_text("CREATE TABLE A (K INT64) PRIMARY KEY (K); CREATE CHANGE STREAM S FOR A")
    arguments = ("--database", "bank", "--ddl-file", str(schema))
    with running(*arguments, command=("-c", _START), output="[]\n"):
        pass
