"""A forked command says and does what one that is started does."""

from __future__ import annotations

import os
import select
import subprocess
import sys

import pytest

from tests.command_server import run_module

pytestmark = pytest.mark.integration

PATIENCE_S = 120
BY_MODULE = {
    "tidegate.producer": [("--version",), ("status", "--no-such-option"), ("check",)],
    "tidegate.spark_consumer": [("--version",), ("status", "--checkpoint", "nowhere")],
}


@pytest.mark.parametrize("module", BY_MODULE)
def test_output_and_exit_code_are_those_of_a_command_that_is_started(module, tmp_path):
    environ = {**os.environ, "COLUMNS": "70"}
    for arguments in BY_MODULE[module]:
        forked = run_module(
            module, *arguments, environ=environ, folder=tmp_path, timeout_s=PATIENCE_S
        )
        started = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            env=environ, cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (forked.returncode, forked.stdout) == (started.returncode, started.stdout)
        assert forked.stderr == started.stderr


def test_settings_of_one_command_are_not_seen_by_the_next(tmp_path):
    def said(**environ):
        done = run_module(
            "tidegate.producer", "check",
            environ={**os.environ, **environ}, folder=tmp_path, timeout_s=PATIENCE_S,
        )  # fmt: skip
        return done.returncode, done.stderr

    without = said()
    assert "surprise" in said(TIDEGATE_PRODUCER_PREFIX="sur prise surprise")[1]
    assert said() == without


def test_one_that_takes_too_long_is_killed_and_the_next_one_runs(tmp_path):
    environ = dict(os.environ)
    with pytest.raises(subprocess.TimeoutExpired):
        run_module("tidegate.producer", "--version", environ=environ, timeout_s=0)
    done = run_module("tidegate.producer", "--version", environ=environ, timeout_s=PATIENCE_S)
    assert done.returncode == 0


def test_one_whose_test_is_ended_is_killed_and_the_next_one_runs(monkeypatch):
    def end(*_waited_for):
        raise KeyboardInterrupt

    environ = dict(os.environ)
    with monkeypatch.context() as patch:
        patch.setattr(select, "select", end)
        with pytest.raises(KeyboardInterrupt):
            run_module("tidegate.producer", "--version", environ=environ, timeout_s=PATIENCE_S)
    done = run_module("tidegate.producer", "--version", environ=environ, timeout_s=PATIENCE_S)
    assert done.returncode == 0
