r"""The bank's customers: a program that transfers money with a few threads, seeded.

    python -m tidegate.local_stack.demo.customers --spanner 127.0.0.1:9010 --accounts 200 \
        --transfers 1000 --seed 1

`Customers` starts it as a child process and follows its progress: a JSON line every half second and
a last one with `done`.

Standard input takes two orders, one a line.  `continue` ends the pause before the next transfer
that `--pause-before` names.  `finish` ends all pauses and the reserve.  The reserve (`--reserve`)
is the last transfers: they start slowly, and the very last one only after `finish`, so that a kill
always happens during transfers and at least one transfer commits after it.  A program that has a
reserve or pauses reads its orders.  When standard input ends before `finish`, the parent process
has ended: then that program ends with exit code 1.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from tidegate.local_stack.demo.bank import Bank
from tidegate.local_stack.demo.bank_database import (
    commit_time_us,
    open_database,
    quiet_environment,
    transfer_money,
)
from tidegate.local_stack.errors import PartFailedError
from tidegate.local_stack.parts.programs import DatabaseName

_END_S = 5.0


@dataclass(slots=True)
class Customers:
    """One run of the program."""

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
        command = [sys.executable, "-m", "tidegate.local_stack.demo.customers"]
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
                self._follower.join(_END_S)  # it may not have read the last line yet: the cause
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
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


_PROGRESS_EVERY_S = 0.5
_TICKET_POLL_S = 0.02
_TRANSACTION_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Pace:
    """When each transfer may start."""

    transfers: int
    rate_max: float = 0.0
    """Transfers per second; 0: no limit."""
    pauses: tuple[int, ...] = ()
    """The numbers of the transfers that wait for a `continue` each, in ascending order."""
    reserve: int = 0
    """How many of the last transfers are in the reserve."""
    reserve_rate: float = 20.0
    """Transfers per second in the reserve before `finish`."""

    def due_s(self, number: int, *, taken_last_s: float, continued: int, finishing: bool) -> float:
        """Return when a transfer may start, seconds since the beginning; infinity: not yet.

        `taken_last_s` is when the transfer before it started, `continued` how many times
        `continue` was read.
        """
        if finishing:
            return 0.0
        if sum(pause <= number for pause in self.pauses) > continued:
            return float("inf")
        if number >= self.transfers - self.reserve:
            is_last = number == self.transfers - 1
            return float("inf") if is_last else taken_last_s + 1 / self.reserve_rate
        return taken_last_s + 1 / self.rate_max if self.rate_max else 0.0


@dataclass(slots=True)
class Tickets:
    """Hands out the numbers of transfers, each once, at a pace; used by all threads."""

    pace: Pace
    continued: int = 0
    """How many times `continue` was read."""
    finishing: threading.Event = field(default_factory=threading.Event)
    stopped: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _next: int = 0
    _taken_last_s: float = 0.0
    _began: float = field(default_factory=time.monotonic)

    def take(self) -> int | None:
        """Wait until the next number is due and return it; None: all are taken, or `stopped`."""
        while not self.stopped.is_set():
            with self._lock:
                if self._next >= self.pace.transfers:
                    return None
                now_s = time.monotonic() - self._began
                due_s = self.pace.due_s(
                    self._next,
                    taken_last_s=self._taken_last_s,
                    continued=self.continued,
                    finishing=self.finishing.is_set(),
                )
                if now_s >= due_s:
                    self._next += 1
                    self._taken_last_s = now_s
                    return self._next - 1
            self.stopped.wait(min(due_s - now_s, _TICKET_POLL_S))
        return None


@dataclass(slots=True)
class Progress:
    """The counts of all threads together."""

    transfers: int = 0
    retries: int = 0
    last_commit_us: int = 0
    failure: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def committed(self, *, commit_us: int, retries: int) -> None:
        """Count one transfer."""
        with self._lock:
            self.transfers += 1
            self.retries += retries
            self.last_commit_us = max(self.last_commit_us, commit_us)

    def line(self, *, began: float, done: bool) -> str:
        """Return the state as one JSON line."""
        return json.dumps(
            {
                "transfers": self.transfers,
                "retries": self.retries,
                "last_commit_us": self.last_commit_us,
                "seconds": round(time.monotonic() - began, 3),
                "done": done,
                "failure": self.failure,
            }
        )


def run_workload(
    database: Any,
    *,
    bank: Bank,
    tickets: Tickets,
    progress: Progress,
    threads: int,
    commit_timestamps: bool = True,
) -> list[threading.Thread]:
    """Start the customers; they end when there are no tickets left, or at the first failure."""

    def customer() -> None:
        try:
            while (number := tickets.take()) is not None:
                _one_transfer(
                    database,
                    bank=bank,
                    number=number,
                    progress=progress,
                    commit_timestamps=commit_timestamps,
                )
        except Exception as error:  # noqa: BLE001 - reported to the parent, whatever it is
            progress.failure = f"{type(error).__name__}: {error}"
            tickets.stopped.set()

    started = [threading.Thread(target=customer, daemon=True) for _ in range(threads)]
    for thread in started:
        thread.start()
    return started


def _one_transfer(
    database: Any, *, bank: Bank, number: int, progress: Progress, commit_timestamps: bool
) -> None:
    transfer = bank.transfer(number)
    attempts: list[Any] = []

    def work(transaction: Any) -> None:
        attempts.append(transaction)
        transfer_money(transaction, transfer, commit_timestamps=commit_timestamps)

    database.run_in_transaction(
        work, transaction_tag=f"transfer-{number}", timeout_secs=_TRANSACTION_TIMEOUT_S
    )
    progress.committed(commit_us=commit_time_us(attempts[-1].committed), retries=len(attempts) - 1)


def _follow_orders(tickets: Tickets) -> None:
    for line in sys.stdin:
        match line.strip():
            case "continue":
                tickets.continued += 1
            case "finish":
                tickets.finishing.set()
                return
            case _:
                pass
    tickets.stopped.set()


def main(
    *,
    accounts: Annotated[int, typer.Option(min=2)],
    transfers: Annotated[int, typer.Option(min=1)],
    seed: Annotated[int, typer.Option()],
    spanner: Annotated[str, typer.Option(help="host:port of the simulator or emulator.")],
    project: str = "local",
    instance: str = "bank",
    database: str = "bank",
    threads: Annotated[int, typer.Option(min=1)] = 6,
    rate: Annotated[float, typer.Option(help="Transfers per second at most; 0: no limit.")] = 0.0,
    pause_before: Annotated[
        list[int] | None, typer.Option(help="Pause before this transfer until `continue`.")
    ] = None,
    reserve: Annotated[int, typer.Option(help="Last transfers, slow until `finish`.")] = 0,
    commit_timestamps: Annotated[bool, typer.Option()] = True,
) -> None:
    """Transfer money until all transfers are done."""
    pauses = tuple(sorted(pause_before or ()))
    pace = Pace(transfers=transfers, rate_max=rate, pauses=pauses, reserve=min(reserve, transfers))
    tickets = Tickets(pace)
    progress = Progress()
    if reserve or pauses:
        threading.Thread(target=_follow_orders, args=(tickets,), daemon=True).start()
    began = time.monotonic()
    customers = run_workload(
        open_database(
            DatabaseName(address=spanner, project=project, instance=instance, database=database)
        ),
        bank=Bank(accounts=accounts, seed=seed),
        tickets=tickets,
        progress=progress,
        threads=threads,
        commit_timestamps=commit_timestamps,
    )
    for customer in customers:
        while customer.is_alive():
            customer.join(_PROGRESS_EVERY_S)
            _print(progress.line(began=began, done=False))
    complete = progress.transfers == transfers
    _print(progress.line(began=began, done=complete))
    # The client's own threads would keep the program alive for minutes.
    os._exit(0 if complete else 1)


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(main)
    app()
