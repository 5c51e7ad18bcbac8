"""Workers and consumer on a running stack: started, watched, stopped.

Every wait has a deadline and ends early when a program ends by itself; the error shows the ends of
the logs.
"""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tidegate.local_stack.errors import PartFailedError
from tidegate.local_stack.parts.programs import Program, Programs

_BATCH = b'"event": "batch"'
_POLL_S = 0.1
_METADATA_S = 5.0
_WORKERS_DEADLINE_S = 90.0
_TAIL_LINES = 12
_TERMINATED = 128 + signal.SIGTERM


@dataclass(frozen=True, slots=True)
class Released:
    """The number of releases in the output, and the commit time that the last one ends at.

    `is_mirrored` says that the mirrors have all of them.
    """

    releases: int
    through_us: int
    is_mirrored: bool = True


@dataclass(slots=True)
class Pipeline:
    """Workers and one consumer; start them in this order, stop them all with `stop`."""

    programs: Programs
    workers: list[Program] = field(default_factory=list)
    consumer: Program | None = None
    console: Program | None = None
    _down_on_purpose: set[str] = field(default_factory=set)

    def start_workers(
        self, count: int, *, start: str, tick: Callable[[], None] = lambda: None
    ) -> None:
        """Start workers `w1`, `w2`, … reading from `start` (RFC 3339) if the stream is new.

        The other workers start when the first one has created the topics, so that a wrong setting
        is reported once.
        """
        for number in range(1, count + 1):
            worker = self.programs.worker(f"w{number}", start=start)
            self.workers.append(worker)
            worker.start()
            if number == 1:
                self._wait_for_progress_topic(tick)

    def start_consumer(self, tick: Callable[[], None] = lambda: None) -> None:
        """Start the consumer as soon as the workers have created the progress topic."""
        self._wait_for_progress_topic(tick)
        self.consumer = self.programs.consumer()
        self.consumer.start()

    def start_console(self, *, port: int) -> None:
        """Start the console; it needs neither workers nor a consumer."""
        self.console = self.programs.console(port=port)
        self.console.start()

    def records_in(self, topic: str) -> int:
        """Return how many records a topic has, with those that no transaction committed.

        0 where the broker does not know it yet, or is about to create it.
        """
        consumer = Consumer(
            {"bootstrap.servers": self.programs.bootstrap_servers, "group.id": "tidegate-demo"}
        )
        # A topic partition of a new topic has no leader for a moment.
        with contextlib.closing(consumer), contextlib.suppress(KafkaException):
            description = consumer.list_topics(topic, timeout=_METADATA_S).topics[topic]
            return sum(
                high - low
                for number in description.partitions
                for low, high in [
                    consumer.get_watermark_offsets(
                        TopicPartition(topic, number), timeout=_METADATA_S
                    )
                ]
            )
        return 0

    def _wait_for_progress_topic(self, tick: Callable[[], None]) -> None:
        topic = f"{self.programs.prefix}-progress"
        admin = AdminClient({"bootstrap.servers": self.programs.bootstrap_servers})
        self.wait(
            lambda: topic in admin.list_topics(timeout=_METADATA_S).topics,
            what="the workers to create the progress topic",
            deadline_s=_WORKERS_DEADLINE_S,
            tick=tick,
        )

    def released(self) -> Released:
        """Return the facts in the release manifests."""
        folder = self.programs.output / "_releases"
        paths = sorted(folder.glob("*.json")) if folder.is_dir() else []
        if not paths:
            return Released(0, 0)
        newest = json.loads(paths[-1].read_bytes())
        mirrors = [sinks.get("mirror") for sinks in newest["tables"].values()]
        is_mirrored = all(
            mirror and mirror.get("release", newest["release"]) == newest["release"]
            for mirror in mirrors
        )
        return Released(len(paths), int(newest["through_us"]), is_mirrored)

    def batches(self) -> int:
        """Return how many batches the consumer has finished, in all its runs on this checkpoint."""
        folder = self.programs.checkpoint / "spark" / "commits"
        numbers = [int(path.name) for path in folder.glob("[0-9]*")] if folder.is_dir() else []
        return max(numbers, default=-1) + 1

    def wait(
        self,
        condition: Callable[[], bool],
        *,
        what: str,
        deadline_s: float,
        tick: Callable[[], None] = lambda: None,
        so_far: Callable[[], str] = lambda: "",
    ) -> None:
        """Wait for a condition; raises PartFailedError at the deadline or when a program ends.

        `so_far` returns the progress, for the error at a deadline.
        """
        end = time.monotonic() + deadline_s
        while not condition():
            self.check()
            tick()
            if time.monotonic() > end:
                raise PartFailedError(
                    f"waited {deadline_s:.0f} s for {what}{so_far()}\n{self.log_tails()}"
                )
            time.sleep(_POLL_S)

    def wait_released(
        self, through_us: int, *, deadline_s: float, tick: Callable[[], None] = lambda: None
    ) -> None:
        """Wait until everything committed up to an instant is in changelog and mirrors."""

        def is_released() -> bool:
            released = self.released()
            return released.through_us >= through_us and released.is_mirrored

        def so_far() -> str:
            batch = "no batch" if self.consumer is None else _last_batch(self.consumer.spec.log)
            return f"; {self.released()}; the last one of its log: {batch}"

        self.wait(
            is_released,
            what=f"the consumer to release everything up to {through_us} us",
            deadline_s=deadline_s,
            tick=tick,
            so_far=so_far,
        )

    def check(self) -> None:
        """Raise PartFailedError if a program has ended by itself."""
        for program in self._all():
            process = program.process
            if process.exit_code is not None and program.name not in self._down_on_purpose:
                raise PartFailedError(
                    f"{program.name} ended by itself with exit code {process.exit_code}; "
                    f"its log {program.spec.log} ends with:\n{process.log_tail(_TAIL_LINES)}"
                )

    def going_down(self, program: Program) -> None:
        """Announce a kill: the program's end is not a failure until `is_up_again`."""
        self._down_on_purpose.add(program.name)

    def is_up_again(self, program: Program) -> None:
        """Announce that a killed program runs again."""
        self._down_on_purpose.discard(program.name)

    def log_tails(self) -> str:
        """Return the ends of all logs, for an error message."""
        return "\n".join(
            f"--- {program.spec.log}\n{program.process.log_tail(_TAIL_LINES)}"
            for program in self._all()
        )

    def stop(self) -> list[str]:
        """Stop all programs, the workers last; return an error text per failed exit.

        A program that SIGTERM ended before its first step has not failed: programs that still start
        have no handler of it, and have nothing to finish.
        """
        faults = []
        for program in [p for p in (self.console, self.consumer, *self.workers) if p is not None]:
            code = program.stop()
            if code not in {0, None} and (code != _TERMINATED or program.has_begun):
                faults.append(
                    f"{program.name} was stopped and ended with exit code {code}; its log "
                    f"{program.spec.log} ends with:\n{program.process.log_tail(_TAIL_LINES)}"
                )
        self.console, self.consumer, self.workers = None, None, []
        return faults

    def _all(self) -> list[Program]:
        others = (self.consumer, self.console)
        return [*self.workers, *(program for program in others if program is not None)]


def _last_batch(log: Path) -> str:
    """Return the last batch in a consumer's log: its watermark, and the cause of its lag."""
    lines = log.read_bytes().splitlines() if log.is_file() else []
    batches = (line for line in reversed(lines) if _BATCH in line)
    return next(batches, b"no batch").decode(errors="replace")
