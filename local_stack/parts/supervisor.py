"""A small program between a parent and its child process, so that the child cannot outlive it.

`process` runs this file by its path, in isolated mode: standard library only.  Its standard input
is a pipe whose other end only the parent holds.  When that end closes, because the parent closed it
or ended, the child's process group gets SIGTERM, and SIGKILL after a grace period.  This works on
every POSIX system; on Linux the child also ends with the supervisor itself.

A child that ends without SIGKILL may leave children of its own: these get SIGTERM too, and SIGKILL
after three seconds.

Invariant: when the supervisor has ended, no process of the child's group is left.

Usage: supervisor.py STATUS_FD GRACE_MS PROGRAM [ARGUMENT...].  The child's pid (also its group) is
written to STATUS_FD as one line; `-1 REASON` if it could not be started.  Exit code: the child's,
or 128 + the signal that ended it.
"""

from __future__ import annotations

import ctypes
import os
import selectors
import signal
import socket
import subprocess
import sys
import time

PR_SET_PDEATHSIG = 1

EXIT_CANNOT_START = 127

REST_S = 3.0
"""How long the child's own children may take to end after it: a JVM removes its folders then."""

POLL_S = 0.02


def main(arguments: list[str]) -> int:
    """Run the child until it or the parent ends; return the exit code."""
    status_fd, grace_s = int(arguments[0]), int(arguments[1]) / 1000
    # A signal handler only wakes the selector; the reaction is in one place, below.
    waker, wakened = socket.socketpair()
    waker.settimeout(0)
    wakened.settimeout(0)
    signal.set_wakeup_fd(waker.fileno())
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _only_wake)
    try:
        child = subprocess.Popen(
            arguments[2:],
            stdin=subprocess.DEVNULL,
            process_group=0,
            preexec_fn=_die_with_supervisor if sys.platform == "linux" else None,  # noqa: PLW1509
            # one thread
        )
    except OSError as error:
        os.write(status_fd, f"-1 {error}\n".encode())
        return EXIT_CANNOT_START
    os.write(status_fd, f"{child.pid}\n".encode())
    os.close(status_fd)

    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
        selector.register(wakened, selectors.EVENT_READ)
        _wait_for_either(child, selector, wakened)
        has_ended = child.poll() is not None
        if not has_ended:
            selector.unregister(sys.stdin.fileno())
            _signal_group(child.pid, signal.SIGTERM)
            _wait_for_child(child, selector, wakened, deadline=time.monotonic() + grace_s)
    # A group may outlive its leader: end the child's own children too.
    if child.poll() not in {None, -signal.SIGKILL}:
        if has_ended:
            _signal_group(child.pid, signal.SIGTERM)
        _wait_for_group(child.pid, deadline=time.monotonic() + REST_S)
    _signal_group(child.pid, signal.SIGKILL)
    code = child.wait()
    return code if code >= 0 else 128 - code


def _only_wake(_number: int, _frame: object) -> None:
    """Python writes the signal's number to the wake-up socket only when a handler is set."""


def _die_with_supervisor() -> None:
    """Linux only: have the kernel kill the child when this supervisor ends."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _wait_for_either(
    child: subprocess.Popen[bytes], selector: selectors.BaseSelector, wakened: socket.socket
) -> None:
    """Return when the child has ended, the pipe has closed, or a signal asks to stop."""
    while child.poll() is None:
        for key, _ in selector.select():
            if key.fileobj is wakened:
                stops = set(wakened.recv(64)) & {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
                if stops:
                    return
            elif not os.read(sys.stdin.fileno(), 64):
                return


def _wait_for_child(
    child: subprocess.Popen[bytes],
    selector: selectors.BaseSelector,
    wakened: socket.socket,
    *,
    deadline: float,
) -> None:
    while child.poll() is None:
        left = deadline - time.monotonic()
        if left <= 0:
            return
        for _ in selector.select(left):
            wakened.recv(64)


def _wait_for_group(group: int, *, deadline: float) -> None:
    """Return when no process of the group is left, or at the deadline."""
    while _signal_group(group, 0) and time.monotonic() < deadline:
        time.sleep(POLL_S)


def _signal_group(group: int, number: int) -> bool:
    """Send a signal, or nothing for 0; return whether the group has a process."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        # The group is empty; macOS returns EPERM for a group with only a zombie.
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
