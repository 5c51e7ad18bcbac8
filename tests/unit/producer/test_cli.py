"""The command line: faults are printed in one line, with exit code 2 and no traceback."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import structlog

from tidegate.producer.cli import main

GOOD = {
    "bootstrap-servers": "127.0.0.1:1",
    "registry-url": "http://127.0.0.1:1/",
    "project": "p",
    "instance": "bank",
    "database": "bank",
    "change-stream": "s",
    "prefix": "bank",
}


@pytest.fixture
def run(monkeypatch, capsys):
    """Run the program's entry point; return its exit code and what it wrote to stderr."""

    def run_main(*arguments):
        monkeypatch.setattr(sys, "argv", ["tidegate-producer", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return ended.value.code, captured.err, captured.out

    yield run_main
    structlog.reset_defaults()  # it holds the captured stderr, which is closed after the test


def flags(**changes):
    """Return good flags with some changed; None leaves one out."""
    settings = {**GOOD, **{name.replace("_", "-"): value for name, value in changes.items()}}
    return [
        part
        for name, value in settings.items()
        if value is not None
        for part in (f"--{name}", str(value))
    ]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"prefix": "-x"}, "prefix"),
        ({"project": None, "database": None}, "database"),
        ({"heartbeat_ms": 5}, "heartbeat_ms"),
        ({"start": "yesterday"}, "start"),
        ({"slots": 0}, "slots"),
    ],
)
def test_a_faulty_setting_is_named(run, changes, named):
    code, output, _ = run("check", *flags(**changes))

    assert code == 2
    assert named in output
    assert "Traceback" not in output


def test_an_unknown_setting_in_a_file_is_named(run, tmp_path):
    file = tmp_path / "producer.toml"
    file.write_text('hearbeat_ms = 100\nregistry_user_info = "me:secret"\n')
    code, output, _ = run("check", "--config", str(file), *flags())

    assert code == 2
    assert "hearbeat_ms: unknown setting" in output
    assert "secret" not in output


def test_a_broker_that_does_not_answer_is_named(run):
    code, output, _ = run("check", *flags())

    assert code == 2
    assert "no Kafka broker answers at 127.0.0.1:1" in output
    assert "Traceback" not in output


def test_help_lists_every_setting_but_no_secret(run):
    _, _, text = run("run", "--help")

    assert "--heartbeat-ms" in text
    assert "--commit-interval-ms" in text
    assert "user-info" not in text


@pytest.mark.parametrize(("before", "after"), [(None, "ERROR"), ("INFO", "INFO")])
def test_grpc_logs_errors_only_unless_the_environment_sets_its_verbosity(
    run, monkeypatch, before, after
):
    # Set first, so that what the program sets is taken back after the test.
    monkeypatch.setenv("GRPC_VERBOSITY", before or "")
    if before is None:
        monkeypatch.delenv("GRPC_VERBOSITY")
    run("--help")

    assert os.environ["GRPC_VERBOSITY"] == after


def test_grpc_is_not_loaded_before_its_verbosity_is_set():
    """It looks at the variable once, when it is imported."""
    program = "import sys, tidegate.producer.cli; sys.exit('grpc' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0
