"""The workload as a child process: started, followed by its progress lines, paused, finished.

The child ends when its standard input does, so it cannot outlive this process.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidegate.local_stack.demo.bank import Bank
from tidegate.local_stack.demo.bank_database import quiet_environment
from tidegate.local_stack.errors import PartFailedError
from tidegate.local_stack.parts.programs import DatabaseName

_STOP_S = 5.0


@dataclass(slots=True)
class Customers:
    """One run of the workload."""

    database: DatabaseName
    bank: Bank
    transfers: int
    rate_max: float
    reserve: int
    log: Path
    pauses: tuple[int, ...] = ()
    """Before these transfers it waits for `resume`, once for each."""
    threads: int = 6
    commit_timestamps: bool = True
    _process: subprocess.Popen[str] | None = None
    _latest: dict[str, Any] = field(default_factory=dict)
    _follower: threading.Thread | None = None

    def start(self) -> None:
        """Start transferring."""
        options = {
            "--spanner": self.database.address,
            "--project": self.database.project,
            "--instance": self.database.instance,
            "--database": self.database.database,
            "--accounts": self.bank.accounts,
            "--transfers": self.transfers,
            "--seed": self.bank.seed,
            "--rate": self.rate_max,
            "--reserve": self.reserve,
            "--threads": self.threads,
        }
        command = [sys.executable, "-m", "tidegate.local_stack.demo.workload"]
        command += [str(part) for option in options.items() for part in option]
        command += [part for pause in self.pauses for part in ("--pause-before", str(pause))]
        command += [] if self.commit_timestamps else ["--no-commit-timestamps"]
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | quiet_environment(self.database.address),
                # Ctrl-C must not reach the child: this process stops it in order.
                start_new_session=True,
            )
        self._follower = threading.Thread(target=self._follow, args=(self._process,), daemon=True)
        self._follower.start()

    def _follow(self, process: subprocess.Popen[str]) -> None:
        for line in process.stdout or ():
            with contextlib.suppress(ValueError):
                self._latest = json.loads(line)

    @property
    def done(self) -> int:
        """Transfers committed so far."""
        return int(self._latest.get("transfers", 0))

    @property
    def retries(self) -> int:
        """Transactions that the client repeated because Spanner aborted them."""
        return int(self._latest.get("retries", 0))

    @property
    def last_commit_us(self) -> int:
        """The latest commit timestamp so far, microseconds since 1970."""
        return int(self._latest.get("last_commit_us", 0))

    @property
    def has_finished(self) -> bool:
        """Whether all transfers are committed; raises PartFailedError if the program failed."""
        if self._latest.get("done"):
            return True
        code = self._process.poll() if self._process else None
        if code:
            if self._follower is not None:
                self._follower.join(_STOP_S)  # it may not have read the last line yet: the cause
            cause = self._latest.get("failure") or f"exit code {code}"
            raise PartFailedError("the bank's customers failed", cause=cause, log=str(self.log))
        return False

    def resume(self) -> None:
        """End the pause that the program is in or comes to next."""
        self._order("continue")

    def finish(self) -> None:
        """End all pauses and the reserve: the remaining transfers start at once."""
        self._order("finish")

    def _order(self, order: str) -> None:
        if self._process and self._process.stdin:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.write(order + "\n")
                self._process.stdin.flush()

    def stop(self) -> None:
        """End the program, finished or not."""
        if self._process is None:
            return
        if self._process.stdin:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
