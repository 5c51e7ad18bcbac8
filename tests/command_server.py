"""Runs modules as programs, in processes that are forked from one that has loaded their parts.

Loading a program with its clients takes most of the CPU time of most commands.  What is run is a
process of its own all the same: with its own environment, arguments and standard streams, and it
ends as any program does.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[1]
_LOADED = {
    "tests.mutants": (
        "hypothesis",
        "pytest",
        "confluent_kafka.admin",
        "pyspark.sql",
        "tests.simulation.checking",
        "tidegate.producer.cli.run",
        "tidegate.spark_consumer.cli",
    ),
    "tidegate.producer": (
        "confluent_kafka.admin",
        "tidegate.producer.cli",
        "tidegate.producer.cli.check",
        "tidegate.producer.cli.run",
    ),
    "tidegate.spark_consumer": (
        "confluent_kafka.admin",
        "pyspark.sql",
        "tidegate.spark_consumer.cli",
    ),
}
"""What the first process loads for each module; none of it may start a thread."""


def run_module(
    module: str,
    *arguments: str,
    environ: Mapping[str, str],
    timeout_s: float,
    folder: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `python -m module arguments` to its end, without standard input.

    Raises `subprocess.TimeoutExpired` after `timeout_s`, with the process killed.
    """
    return _server(module).run(arguments, environ, folder or Path.cwd(), timeout_s)


@cache
def _server(module: str) -> _Server:
    return _Server(module)


class _Server:
    """The process that forks, until the tests end."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._is_free = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, module],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # what has arrived and was not asked for stays where `select` sees it
        )
        atexit.register(self._stop)

    def run(
        self, arguments: tuple[str, ...], environ: Mapping[str, str], folder: Path, timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        with self._is_free, tempfile.TemporaryDirectory() as printed:
            outputs = [Path(printed, name) for name in ("stdout", "stderr")]
            for path in outputs:
                path.touch()
            request = {
                "arguments": arguments,
                "environ": dict(environ),
                "folder": str(folder),
                "outputs": list(map(str, outputs)),
            }
            assert self._process.stdin is not None
            self._process.stdin.write(f"{json.dumps(request)}\n".encode())
            code = self._ended(timeout_s)
            command = ["python", "-m", self._module, *arguments]
            texts = [path.read_text() for path in outputs]
            if code is None:
                raise subprocess.TimeoutExpired(command, timeout_s, *texts)
            return subprocess.CompletedProcess(command, code, *texts)

    def _ended(self, timeout_s: float) -> int | None:
        """Wait for the process to end and return its exit code; None if it was killed instead."""
        process_id, is_over = self._answer(), False
        try:
            is_over = bool(select.select([self._process.stdout], [], [], timeout_s)[0])
        finally:  # also where pytest ends the test meanwhile
            if not is_over:
                os.kill(process_id, signal.SIGKILL)
            code = self._answer()
        return code if is_over else None

    def _answer(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def _stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def _serve(module: str) -> None:
    """Fork for each line of standard input; say the process id, and at its end its exit code."""
    for name in _LOADED[module]:
        importlib.import_module(name)
    tasks = Path("/proc/self/task")  # of Linux; they count native threads as well
    threads = len(list(tasks.iterdir())) if tasks.exists() else threading.active_count()
    assert threads == 1, f"loading {module} has started {threads - 1} threads, which no fork keeps"
    for line in iter(sys.stdin.readline, ""):
        process_id = os.fork()
        if process_id == 0:
            _become(module, json.loads(line))
            return
        _reply(process_id)
        _reply(os.waitstatus_to_exitcode(os.waitpid(process_id, 0)[1]))


def _reply(number: int) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


def _become(module: str, request: dict[str, Any]) -> None:
    """Be the program: what it raises ends this process as it would end its own."""
    for number, path in enumerate((os.devnull, *request["outputs"])):
        opened = os.open(path, os.O_RDWR)
        os.dup2(opened, number)
        os.close(opened)
    os.environ.clear()
    os.environ.update(request["environ"])
    os.chdir(request["folder"])
    sys.argv[:] = [f"{module}/__main__.py", *request["arguments"]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    # As the producer sets it before it loads gRPC; and NumPy's threads would not be forked.
    os.environ |= {"GRPC_VERBOSITY": "ERROR", "OPENBLAS_NUM_THREADS": "1"}
    _serve(sys.argv[1])
