"""Child processes and ports: log file, readiness with a deadline, clean stop, no orphans.

Every child runs below a `supervisor`, which ends the child's whole process group when this process
requests it or ends.  A child that ends while it should become ready is an error with the last lines
of its log.

All ports of a stack are held until the last one is chosen, so they differ.  Another program may
take one between choice and use; that part then fails to start, and its log says so.  Free ports are
outside the range that systems give to connections: a broker needs seconds to listen, and any client
of the machine could have taken its port by then.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Self

from tidegate.local_stack.errors import LocalStackError, PartFailedError, PortTakenError

_READY_POLL_S = 0.05

GRACE_MS = 10_000

# Extra time for the supervisor after the child's grace period, before it is killed too.
SUPERVISOR_MARGIN_S = 5.0

LOG_TAIL_LINES = 15

SUPERVISOR = Path(__file__).with_name("supervisor.py")


class Cancelled(LocalStackError):  # noqa: N818  # not an error: the stack is being stopped
    """The wait ended because the stack is being stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """A command and its files.

    Output is appended to `log`; `stdout`, if set, gets standard output instead and is truncated
    first.  `environ`, if set, replaces the whole environment.
    """

    name: str
    command: Sequence[str]
    log: Path
    stdout: Path | None = None
    environ: Mapping[str, str] | None = None
    folder: Path | None = None
    grace_ms: int = GRACE_MS
    """From SIGTERM to SIGKILL."""


@dataclass(slots=True)
class ChildProcess:
    """One run of a `ProcessSpec`; it can be started once."""

    spec: ProcessSpec
    cancelled: threading.Event = field(default_factory=threading.Event)
    pid: int = -1
    _supervisor: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

    def start(self) -> None:
        """Start the program; raises PartFailedError if it cannot be executed."""
        self.spec.log.parent.mkdir(parents=True, exist_ok=True)
        read_end, write_end = os.pipe()
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, read_end)
            log = stack.enter_context(self.spec.log.open("ab"))
            stdout: IO[bytes] = log
            if self.spec.stdout is not None:
                stdout = stack.enter_context(self.spec.stdout.open("wb"))
            try:
                self._supervisor = subprocess.Popen(
                    [
                        *(sys.executable, "-I", "-S", str(SUPERVISOR)),
                        *(str(write_end), str(self.spec.grace_ms)),
                        *self.spec.command,
                    ],
                    stdin=subprocess.PIPE,
                    stdout=stdout,
                    stderr=log,
                    env=None if self.spec.environ is None else dict(self.spec.environ),
                    cwd=self.spec.folder,
                    pass_fds=(write_end,),
                    # Ctrl-C must not reach the child: this process stops its children in order.
                    start_new_session=True,
                )
            finally:
                os.close(write_end)
            answer = _read_line(read_end)
        pid, _, reason = answer.partition(" ")
        if not pid or pid == "-1":
            self.stop()
            raise PartFailedError(f"{self.spec.name} cannot be started: {reason or 'no answer'}")
        self.pid = int(pid)

    @property
    def is_running(self) -> bool:
        """Whether the program has been started and has not ended."""
        return self._supervisor is not None and self._supervisor.poll() is None

    @property
    def exit_code(self) -> int | None:
        """The exit code (128 + signal if a signal ended it), or None while it runs."""
        return None if self._supervisor is None else self._supervisor.poll()

    def wait(self, *, deadline_s: float | None = None) -> int:
        """Wait for the program to end by itself; raises PartFailedError at the deadline."""
        if self._supervisor is None:
            raise PartFailedError(f"{self.spec.name} was never started")
        try:
            return self._supervisor.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise PartFailedError(
                f"{self.spec.name} is still running after {deadline_s} s", log=str(self.spec.log)
            ) from None

    def wait_ready(self, check: Callable[[], bool], *, deadline_s: float) -> None:
        """Poll `check` until it returns True.

        Raises PartFailedError when the program ends or the deadline passes first, Cancelled when
        the stack is being stopped.
        """
        end = time.monotonic() + deadline_s
        while not check():
            if self.cancelled.wait(_READY_POLL_S):
                raise Cancelled(f"{self.spec.name} was stopped while it started")
            if not self.is_running:
                raise self._failure(f"{self.spec.name} ended with code {self.exit_code}")
            if time.monotonic() > end:
                raise self._failure(f"{self.spec.name} was not ready within {deadline_s:g} s")

    def log_tail(self, lines: int = LOG_TAIL_LINES) -> str:
        """Return the last lines of the log, for an error message."""
        try:
            with self.spec.log.open("rb") as log:
                log.seek(max(0, self.spec.log.stat().st_size - 16_384))
                text = log.read().decode(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def stop(self) -> None:
        """Send SIGTERM, SIGKILL after the grace period; return when all is gone.  Idempotent."""
        if self._supervisor is None:
            return
        self._close_pipe()
        try:
            self._supervisor.wait(self.spec.grace_ms / 1000 + SUPERVISOR_MARGIN_S)
        except subprocess.TimeoutExpired:
            self._kill_group()
            self._supervisor.kill()
            self._supervisor.wait()

    def kill(self) -> None:
        """Send SIGKILL to the program and its process group, like a crash."""
        self._kill_group()
        if self._supervisor is not None:
            self._supervisor.wait()
            self._close_pipe()

    def pause(self) -> None:
        """Send SIGSTOP to the process group: it keeps its locks and connections and does nothing.

        A paused group does not handle SIGTERM: `resume` it before `stop`, or `kill` it.
        """
        self._signal_group(signal.SIGSTOP)

    def resume(self) -> None:
        """Send SIGCONT: a paused group continues; no effect on one that runs or has ended."""
        self._signal_group(signal.SIGCONT)

    def _kill_group(self) -> None:
        self._signal_group(signal.SIGKILL)

    def _signal_group(self, number: signal.Signals) -> None:
        # While the supervisor runs, this group id cannot be that of other processes.
        if self.is_running and self.pid > 0:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def _close_pipe(self) -> None:
        if self._supervisor is not None and self._supervisor.stdin is not None:
            with contextlib.suppress(OSError):
                self._supervisor.stdin.close()

    def _failure(self, what: str) -> PartFailedError:
        tail = self.log_tail()
        return PartFailedError(
            f"{what}; its log {self.spec.log} ends with:\n{tail}" if tail else what,
        )


@dataclass(slots=True, kw_only=True)
class Service:
    """A part of the stack: a child process that is ready when it answers."""

    data_dir: Path
    port: int
    cancelled: threading.Event
    grace_ms: int = GRACE_MS
    """From SIGTERM to SIGKILL."""
    process: ChildProcess | None = None

    def run(self, spec: ProcessSpec, *, is_ready: Callable[[], bool], deadline_s: float) -> None:
        """Start the program, and return when it is ready; raises as `ChildProcess` does."""
        self.process = ChildProcess(spec, cancelled=self.cancelled)
        self.process.start()
        self.process.wait_ready(is_ready, deadline_s=deadline_s)

    def stop(self) -> None:
        """Stop the program; the files in its folder stay."""
        if self.process is not None:
            self.process.stop()

    def kill(self) -> None:
        """End the program with SIGKILL, like a crash."""
        if self.process is not None:
            self.process.kill()


def _read_line(fd: int) -> str:
    """Read a line; an empty text if the supervisor died first."""
    read = b""
    while not read.endswith(b"\n"):
        more = os.read(fd, 256)
        if not more:
            break
        read += more
    return read.decode(errors="replace").strip()


HOST = "127.0.0.1"

_LISTENING = range(15_000, 32_000)
"""Below the ports that systems give to connections (Linux: from 32768, others: from 49152)."""
_TRIES = 50


def choose_ports(wanted: Mapping[str, int]) -> dict[str, int]:
    """Return the requested ports, with a free one for each 0.

    `wanted` maps a setting's name to its port.  Raises PortTakenError, which names the setting.
    """
    chosen: dict[str, int] = {}
    with contextlib.ExitStack() as held:
        # Requested ports first, so that no free one is chosen that is requested too.
        for name, port in sorted(wanted.items(), key=lambda item: item[1] == 0):
            listener = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            # As the servers do; without it the port of a stack that just stopped counts as taken.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                _bind(listener, port)
                listener.listen(1)
            except OSError as error:
                raise PortTakenError(
                    f"{name} {port} cannot be used: {error.strerror}",
                    hint="Choose another port, or 0 for a free one",
                ) from None
            chosen[name] = listener.getsockname()[1]
    return {name: chosen[name] for name in wanted}


def _bind(listener: socket.socket, port: int) -> None:
    """Bind to a port, or to a free one for 0; raises OSError if it is taken."""
    for _ in range(0 if port else _TRIES):
        with contextlib.suppress(OSError):
            listener.bind((HOST, random.choice(_LISTENING)))  # noqa: S311 - no secret
            return
    listener.bind((HOST, port))


def accepts(port: int) -> bool:
    """Return whether a program listens on a port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as client:
        client.settimeout(1.0)
        return client.connect_ex((HOST, port)) == 0
