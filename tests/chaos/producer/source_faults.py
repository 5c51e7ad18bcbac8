"""What the simulator does to readers while a run lasts, decided by the run's seed.

Queries of the change stream end with a status, end early with OK, fall silent, become slow or lose
their connection; stream partitions send nothing for a while.  Commits are left alone, but for the
connections that they share with readers.
"""

from __future__ import annotations

import json
import random
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tidegate.local_stack.demo.conductor import SimulatorControl
from tidegate.local_stack.errors import LocalStackError

KINDS = (
    "status at the open",
    "status after rows",
    "clean end after rows",
    "clean end without children",
    "stall at the open",
    "stall after rows",
    "slow",
    "connection cut after rows",
    "connections cut",
    "interrupt",
    "hold",
)
READ_FAULTS: tuple[dict[str, Any], ...] = (
    {"kind": "slow", "delay_ms": 3_000, "probability": 0.6},
    {"kind": "status", "when": "after_rows", "after_rows": 3_000, "probability": 0.5},
    {"kind": "drop", "when": "after_rows", "after_rows": 7_000, "probability": 0.5},
)
"""Each read of a table meets the first that befalls it; one in ten meets none."""

_RETRIABLE = ("UNAVAILABLE", "ABORTED", "DEADLINE_EXCEEDED", "INTERNAL", "RESOURCE_EXHAUSTED")
_EVERY_S = (0.5, 3.0)
_HOLD_S = (1.0, 8.0)
_TIMEOUT_S = 15


@dataclass(frozen=True, slots=True)
class SourceFault:
    """One injected fault."""

    after_s: float
    """Seconds since the one before."""
    kind: str
    code: str
    after_rows: int
    count: int
    """How many queries it befalls."""
    delay_ms: int
    hold_s: float
    victim: int
    """Which stream partition; taken modulo their number."""


def source_faults_of(seed: int) -> Iterator[SourceFault]:
    """Yield faults without end, every kind once before any comes again."""
    chance = random.Random(f"{seed}/source")
    left: list[str] = []
    while True:
        if not left:
            left = chance.sample(KINDS, len(KINDS))
        yield SourceFault(
            after_s=chance.uniform(*_EVERY_S),
            kind=left.pop(),
            code=chance.choice(_RETRIABLE),
            after_rows=chance.randint(0, 20),
            count=chance.randint(1, 3),
            delay_ms=chance.randint(50, 700),
            hold_s=chance.uniform(*_HOLD_S),
            victim=chance.randrange(1_000),
        )


@dataclass(slots=True)
class SourceFaults:
    """Carries them out through the simulator's control port."""

    control: SimulatorControl
    seed: int
    say: Callable[[str], None]
    done: Counter[str] = field(default_factory=Counter)

    def disturb(self, until: threading.Event) -> None:
        """Go on until the event is set, then take everything back."""
        for fault in source_faults_of(self.seed):
            if until.wait(fault.after_s):
                break
            try:
                self._carry_out(fault, until)
            except LocalStackError as error:
                # The stream partition has ended meanwhile.
                self.say(f"{fault.kind} was refused: {error}")
                continue
            self.done[fault.kind] += 1
        self._send("/clear-faults")
        self._send("/release-all")

    def break_reads(self, ended: threading.Event) -> None:
        """Let reads of tables be slow, fail and lose their connection until the event is set."""
        rules = [
            self._send("/add-fault", method="StreamingRead", count=None, seed=self.seed, **what)
            for what in READ_FAULTS
        ]
        ended.wait()
        for rule in rules:
            self._send("/clear-faults", number=rule["number"])

    def _carry_out(self, fault: SourceFault, until: threading.Event) -> None:
        stream = {"database": self.control.database, "stream": self.control.stream}
        at_rows = {"when": "after_rows", "after_rows": fault.after_rows}
        match fault.kind:
            case "status at the open":
                self._rule(fault, kind="status", code=fault.code)
            case "status after rows":
                self._rule(fault, kind="status", code=fault.code, **at_rows)
            case "clean end after rows":
                self._rule(fault, kind="clean_end", **at_rows)
            case "clean end without children":
                self._rule(fault, kind="clean_end", when="end")
            case "stall at the open":
                self._rule(fault, kind="stall")
            case "stall after rows":
                self._rule(fault, kind="stall", **at_rows)
            case "slow":
                self._rule(fault, kind="slow", delay_ms=fault.delay_ms)
            case "connection cut after rows":
                self._rule(fault, kind="drop", **at_rows)
            case "connections cut":
                self._send("/drop-connections")
            case "interrupt":
                token = self._victim(fault)
                self._send("/interrupt", **stream, token=token, code=fault.code)
            case "hold":
                token = self._victim(fault)
                self._send("/hold", **stream, token=token)
                until.wait(fault.hold_s)
                self._send("/release", **stream, token=token)
            case _:
                raise ValueError(f"no such fault: {fault.kind}")

    def _rule(self, fault: SourceFault, **what: Any) -> None:
        self._send("/add-fault", stream=self.control.stream, count=fault.count, **what)

    def _victim(self, fault: SourceFault) -> str:
        live = self.control.stream_partitions()
        return str(live[fault.victim % len(live)]["token"])

    def _send(self, path: str, **arguments: Any) -> Any:
        url = f"http://{self.control.address}{path}"
        headers = {"Content-Type": "application/json"}
        body = json.dumps(arguments).encode()
        request = urllib.request.Request(url, data=body, headers=headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
                return json.loads(answer.read() or "null")
        except urllib.error.HTTPError as error:
            message = "the simulator refused"
            answer = error.read().decode(errors="replace").strip()
            raise LocalStackError(message, path=path, answer=answer) from error
