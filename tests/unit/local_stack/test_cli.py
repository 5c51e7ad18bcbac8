"""The commands: what they print where, and their exit codes."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from tidegate.local_stack import cli
from tidegate.schemas.errors import ConfigError

DEADLINE_S = 60


def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    import os

    return subprocess.run(
        [sys.executable, "-m", "tidegate.local_stack", *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env={**os.environ, "COLUMNS": "200", **environ},
    )


def test_help_names_the_commands():
    done = run("--help")

    assert 0 == done.returncode
    for name in ("fetch", "up", "demo", "show"):
        assert name in done.stdout


def test_an_unknown_command_is_a_usage_error():
    assert 2 == run("nonsense").returncode


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--files-of", "oracle"), "--files-of oracle has no meaning with --scenario bank"),
        (("--rows", "9"), "--rows 9 has no meaning with --scenario bank"),
    ],
)
def test_an_option_of_another_scenario_is_one_clear_line(arguments: tuple[str, str], text: str):
    done = run("demo", *arguments)

    assert 2 == done.returncode
    assert text in done.stderr
    assert "--scenario datastream" in done.stderr or "or datastream" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_taken_port_is_one_clear_line(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = str(server.getsockname()[1])
        done = run("up", "--data-dir", str(tmp_path), "--kafka-port", taken)

    assert 2 == done.returncode
    assert f"kafka_port {taken}" in done.stderr
    assert "Traceback" not in done.stderr
    assert [] == list(tmp_path.iterdir())


def test_a_java_home_that_does_not_exist_is_one_clear_line(tmp_path):
    done = run("up", "--data-dir", str(tmp_path), JAVA_HOME=str(tmp_path / "gone"))

    assert 2 == done.returncode
    (line,) = [line for line in done.stderr.splitlines() if "JAVA_HOME" in line]
    assert f"{tmp_path}/gone/bin/java does not exist" in line
    assert "Traceback" not in done.stderr
    assert [] == list(tmp_path.iterdir())


def test_an_unknown_variable_is_one_clear_line(tmp_path):
    done = run("up", "--data-dir", str(tmp_path), TIDEGATE_LOCAL_COLOUR="red")

    assert 2 == done.returncode
    assert "TIDEGATE_LOCAL_COLOUR" in done.stderr
    assert "Traceback" not in done.stderr


def test_progress_outside_a_terminal_is_a_line_now_and_then(capsys, monkeypatch):
    monkeypatch.setattr(cli, "QUIET_REPORT_S", 1000.0)
    with cli.shown_progress("fetching") as report:
        report("first")
        report("second")

    said = capsys.readouterr().err
    assert "fetching: done" in said
    assert "second" not in said


def test_brackets_in_a_hint_are_no_markup(capsys, monkeypatch):
    def broken():
        raise ConfigError("pyspark is missing", hint="Type: pip install 'tidegate[local]'")

    monkeypatch.setattr(cli, "app", broken)
    with pytest.raises(SystemExit) as caught:
        cli.main()

    assert 2 == caught.value.code
    assert "'tidegate[local]'" in capsys.readouterr().err
