"""The supervisor by itself: what `process` relies on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil
import pytest

from tidegate.local_stack.parts.process import SUPERVISOR

PATIENCE_S = 20.0


@pytest.fixture
def supervise():
    """Start a supervisor; gives it and the line that it says."""
    started = []

    def start(*command: str, grace_ms: int = 5000):
        read_end, write_end = os.pipe()
        program = subprocess.Popen(
            [sys.executable, "-I", "-S", SUPERVISOR, str(write_end), str(grace_ms), *command],
            stdin=subprocess.PIPE,
            pass_fds=(write_end,),
        )
        started.append(program)
        os.close(write_end)
        with os.fdopen(read_end) as status:
            return program, status.readline().strip()

    yield start
    for program in started:
        program.stdin.close()
        program.wait(PATIENCE_S)


def test_it_runs_with_nothing_but_the_standard_library(supervise):
    """Isolated and without site-packages, it still starts a program and hands back its code."""
    program, said = supervise("/bin/sh", "-c", "exit 5")

    assert said.isdigit()
    assert 5 == program.wait(PATIENCE_S)


def test_a_program_that_cannot_start_is_reported(supervise):
    program, said = supervise("/no/such/program")

    assert said.startswith("-1 ")
    assert 127 == program.wait(PATIENCE_S)


def test_the_pipe_ends_the_program(supervise):
    program, _ = supervise("/bin/sleep", "600")
    program.stdin.close()

    assert 128 + signal.SIGTERM == program.wait(PATIENCE_S)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_program(supervise, number):
    program, _ = supervise("/bin/sleep", "600")
    program.send_signal(number)

    assert 128 + signal.SIGTERM == program.wait(PATIENCE_S)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can tie a child to its parent")
def test_the_program_dies_with_its_supervisor(supervise):
    program, said = supervise("/bin/sleep", "600")
    child = psutil.Process(int(said))
    program.kill()

    psutil.wait_procs([child], timeout=PATIENCE_S)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
