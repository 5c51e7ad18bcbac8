"""The programs of a run: watched, started again when they end, their endings kept and explained.

Every process has a log of its own, so that what a zombie says is not mixed with what its successor
says.  Safe to use from several threads.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.chaos.judge.partitions import Query, queries_in
from tidegate.local_stack.errors import PartFailedError
from tidegate.local_stack.parts.programs import Program

_ENDINGS_MAX = 15
_WITHIN_S = 300.0
_RESTART_PAUSE_S = 1.0
_TAIL_BYTES = 65_536
_KILLED = 137
_TERMINATED = 143
_TRACEBACK = b"Traceback (most recent call last)"
_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_REPLACED = (
    "another process runs under this worker's name",
    "the group fenced this worker",
    "another run has taken this folder",
)
"""What a program may say that another one of its name, or on its checkpoint, has replaced."""

_BEFORE_SIGNALS = '"event": "accelerator"'
"""The line of a worker that begins to connect; after that it handles signals."""

_NO_SERVICE = {
    "broker": (
        "no Kafka broker answers",
        "Kafka answered with an error",
        "init_transactions failed",
    ),
    "registry": ("the schema registry does not answer",),
}
"""What a program may say that was started while there was no broker, or no registry."""

_NO_SOURCE = ("Spanner does not answer", "could not read a stream partition", "could not query")
"""What a worker may say whose first question to Spanner failed."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How one process ended."""

    name: str
    at_s: float
    code: int
    words: str
    """The last thing it said, if that was an error."""
    explanation: str
    """What this run did that makes the ending right; empty if nothing does."""
    log: str


@dataclass(slots=True)
class Member:
    """One process that was started under a name."""

    name: str
    number: int
    program: Program
    is_killed: bool = False
    is_replaced: bool = False
    is_stopping: bool = False
    stopped_at: int | None = None
    """Length of its log when it was signalled to stop; the JVM gets the signal too, and what
    Spark's bridge logs after that does not count."""
    ending: Ending | None = None

    @property
    def label(self) -> str:
        """Name and number, as in the log's name."""
        return f"{self.name}.{self.number}"

    @property
    def log(self) -> Path:
        """What it says."""
        return self.program.spec.log


def explanation_of(
    *,
    code: int,
    words: str,
    is_killed: bool,
    is_replaced: bool,
    is_stopping: bool,
    away: Collection[str],
    no_source: bool = False,
) -> str:
    """Return why an ending is as it must be after what was done to the program, or nothing."""
    if is_killed and code == _KILLED:
        return "killed"
    if is_stopping and code == 0:
        return "stopped"
    if is_stopping and code == _TERMINATED and (not words or _BEFORE_SIGNALS in words):
        return "stopped while it was still starting, before it handled signals"
    if is_replaced and any(text in words for text in _REPLACED):
        return "replaced by another process"
    for name in away:
        if any(text in words for text in _NO_SERVICE[name]):
            return f"no {name}"
    if no_source and any(text in words for text in _NO_SOURCE):
        return "the source failed"
    return ""


def last_words(log: Path) -> str:
    """Return a log's last line that tells an error; else its last line."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    lines = [_STYLE.sub("", line).strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("error:", "broken invariant:"))]
    return (errors or lines or [""])[-1][:400]


def tracebacks_in(log: Path, *, until: int | None = None) -> int:
    """Return how many Python tracebacks a log holds before byte `until`."""
    return log.read_bytes()[:until].count(_TRACEBACK) if log.exists() else 0


@dataclass(slots=True)
class Fleet:
    """All programs by name; `watch` is to be called again and again."""

    make: Mapping[str, Callable[[], Program]]
    seconds: Callable[[], float]
    say: Callable[[str], None]
    was_away: Callable[[], Collection[str]] = tuple
    """Which services, the broker or the registry, were away just now or a moment ago."""
    source_fails: Callable[[], bool] = lambda: False
    """Whether queries of the source fail at times, also those of a worker that starts."""
    members: list[Member] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)
    restarts: int = 0
    _current: dict[str, Member] = field(default_factory=dict)
    _restart_at_s: dict[str, float] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _is_closing: bool = False

    def start(self, name: str) -> Member:
        """Start a new process under a name; an older one goes on running."""
        with self._lock:
            number = 1 + sum(member.name == name for member in self.members)
            made = self.make[name]()
            log = made.spec.log.with_name(f"{name}.{number}.log")
            member = Member(name, number, Program(replace(made.spec, log=log)))
            self.members.append(member)
            self._current[name] = member
            self.restarts += number > 1
            member.program.start()
            return member

    def current(self, name: str) -> Member:
        """Return the youngest process of a name."""
        with self._lock:
            return self._current[name]

    @property
    def active(self) -> list[str]:
        """The names that have a process, or get one again; sorted."""
        with self._lock:
            return sorted(self._current)

    def pids(self) -> dict[str, int]:
        """Return the pid of the youngest process of each name, where it runs."""
        with self._lock:
            processes = {name: one.program.process for name, one in self._current.items()}
        return {name: one.pid for name, one in processes.items() if one.is_running}

    def retire(self, name: str) -> None:
        """Let the youngest process of a name end in order, and start no other one."""
        with self._lock:
            member = self._current.pop(name)
            member.is_stopping = True
        # Without the lock: it takes a while, and the others are to be watched meanwhile.
        self._stop(member)

    def kill(self, member: Member) -> str:
        """SIGKILL a process; returns the step it was in."""
        with self._lock:
            if member.program.process.is_running:
                member.is_killed = True
                member.program.process.kill()
            self._note(member)
            return member.program.step

    def watch(self) -> None:
        """Note who has ended, and start again who should run.

        Raises PartFailedError for a program that ends again and again.
        """
        with self._lock:
            for member in self.members:
                if member.ending is None and member.program.process.exit_code is not None:
                    self._note(member)
            if self._is_closing:
                return
            now_s = time.monotonic()
            for name, member in list(self._current.items()):
                if member.ending is None:
                    continue
                due_s = self._restart_at_s.setdefault(member.label, now_s + _RESTART_PAUSE_S)
                if now_s < due_s:
                    continue
                ended = sum(
                    one.name.partition(".")[0] == name and one.at_s > self.seconds() - _WITHIN_S
                    for one in self.endings
                )
                if ended >= _ENDINGS_MAX:
                    raise PartFailedError(
                        f"{name} ends again and again: {member.ending.words}", log=str(member.log)
                    )
                self.start(name)

    def queries(self, names: Collection[str]) -> list[Query]:
        """Return the queries that all processes of these names have begun."""
        return [
            query
            for member in self.members
            if member.name in names
            for query in queries_in(member.log, worker=member.label)
        ]

    def _note(self, member: Member) -> None:
        code = member.program.process.exit_code
        if code is None or member.ending is not None:
            return
        words = "" if member.is_killed or code == 0 else last_words(member.log)
        explanation = explanation_of(
            code=code,
            words=words,
            is_killed=member.is_killed,
            is_replaced=member.is_replaced,
            is_stopping=member.is_stopping,
            away=self.was_away(),
            # Once it works, a worker repeats what fails.
            no_source=self.source_fails() and not member.program.has_begun,
        )
        at_s = round(self.seconds(), 1)
        member.ending = Ending(member.label, at_s, code, words, explanation, str(member.log))
        self.endings.append(member.ending)
        if not member.is_killed and not (member.is_stopping and code == 0):
            reason = explanation or "UNEXPLAINED"
            self.say(f"{member.label} ended with code {code} ({reason}): {words}")

    def stop(self, names: Sequence[str]) -> None:
        """Let the programs end in order, one after the other; zombies are killed."""
        with self._lock:
            self._is_closing = True
            for name in names:
                member = self._current.get(name)
                if member is not None:
                    self._stop(member)
        self.abandon()

    def _stop(self, member: Member) -> None:
        if member.ending is not None:
            return
        member.is_stopping = True
        member.stopped_at = member.log.stat().st_size
        member.program.process.resume()
        member.program.process.stop()
        with self._lock:
            self._note(member)

    def abandon(self) -> None:
        """SIGKILL for whatever still runs."""
        with self._lock:
            self._is_closing = True
            for member in self.members:
                if member.ending is None:
                    self.kill(member)

    @property
    def tracebacks(self) -> int:
        """Python tracebacks in all logs together."""
        return sum(tracebacks_in(member.log, until=member.stopped_at) for member in self.members)
