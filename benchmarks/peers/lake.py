"""What becomes of the same changes in a lake, after the program that published them was killed.

First Debezium's connector, with its low watermark, and a worker of Tidegate each publish a steady
load (`steady.py`), with a split and a SIGKILL in it.  Then three programs in turn write those
topics to Delta, each as often as there are rounds: a plain copy of Debezium's events, a job that
sorts them behind the low watermark, and Tidegate's consumer.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
from deltalake import DeltaTable

from benchmarks.peers.backlog import ROWS_AT_ONCE, STREAM, TABLE
from benchmarks.peers.publishing import cpu_seconds
from benchmarks.peers.steady import transaction_of
from tidegate.local_stack.demo.pipeline import Pipeline
from tidegate.local_stack.parts.installed_java import find_java
from tidegate.local_stack.parts.process import ChildProcess, ProcessSpec
from tidegate.local_stack.parts.programs import DatabaseName, Programs
from tidegate.local_stack.parts.stack import LocalStack

_PATIENCE_S = 600.0
_POLL_S = 0.1

Written = Iterator[tuple[int, int, int]]
"""The changes of an output in its order: a release or batch, a key, a transaction's number."""


@dataclass(frozen=True, slots=True)
class Topics:
    """What the two programs have published."""

    debezium: str
    """A topic."""
    tidegate: str
    """A prefix."""


@dataclass(slots=True)
class Lake:
    """Writes topics to Delta, each time into a folder of its own."""

    stack: LocalStack
    database: DatabaseName
    folder: Path
    topics: Topics
    committed_us: Mapping[str, Mapping[int, int]]
    """The commit times of the transactions behind each: `debezium`, `tidegate`."""
    _runs: int = 0

    def measure(self, name: str) -> dict[str, float]:
        """Run a program until its output has everything; return its figures."""
        self._runs += 1
        folder = self.folder / f"lake-{self._runs}"
        folder.mkdir(parents=True)
        if name.startswith("tidegate"):
            written, used = self._tidegate(folder)
            committed = self.committed_us["tidegate"]
        else:
            written, used = self._job("copy" if "copy" in name else "sorted", folder)
            committed = self.committed_us["debezium"]
        changes = len(committed) * ROWS_AT_ONCE
        return {
            "wall_s": used["wall_s"],
            "cpu_s": used["cpu_s"],
            "cpu_us": used["cpu_s"] * 1e6 / changes,
            "per_s": changes / used["wall_s"],
            **faults(written, committed),
        }

    def _job(self, way: str, folder: Path) -> tuple[Written, dict[str, float]]:
        spec = ProcessSpec(
            name=way,
            command=[
                *(sys.executable, "-m", "benchmarks.peers.lake_job", way),
                *(self.stack.bootstrap_servers, self.topics.debezium, str(folder)),
            ],
            log=folder / "job.log",
            environ={
                **os.environ,
                "JAVA_HOME": str(find_java().home),
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
        )
        process = ChildProcess(spec)
        used = _used(process, lambda: not process.is_running)
        if process.exit_code != 0:
            sys.exit(f"{way} ended with {process.exit_code}: {process.log_tail(20)}")
        return _of_job(folder / "changes"), used

    def _tidegate(self, folder: Path) -> tuple[Written, dict[str, float]]:
        programs = Programs(
            folder=folder,
            bootstrap_servers=self.stack.bootstrap_servers,
            registry_url=self.stack.registry_url,
            spanner_address=self.stack.spanner_address,
            database=self.database,
            stream=STREAM,
            prefix=self.topics.tidegate,
            log_level="info",
            more={"TIDEGATE_CONSUMER_SINKS": "changelog"},
        )
        pipeline, last_us = Pipeline(programs), max(self.committed_us["tidegate"].values())
        process = ChildProcess(programs.consumer().spec)
        used = _used(process, lambda: pipeline.released().through_us >= last_us)
        process.stop()
        return _of_tidegate(programs.output / "changelog" / TABLE), used


def faults(written: Written, committed_us: Mapping[int, int]) -> dict[str, float]:
    """Count what an output lacks, has twice, has after a later commit, and has torn apart."""
    found: dict[tuple[int, int], int] = {}
    places: dict[int, set[int]] = {}
    out_of_order, newest_us = 0, 0
    for place, key, transaction in written:
        at_us = committed_us.get(transaction, 0)
        out_of_order += at_us < newest_us
        newest_us = max(newest_us, at_us)
        found[key, transaction] = found.get((key, transaction), 0) + 1
        places.setdefault(transaction, set()).add(place)
    wanted = len(committed_us) * ROWS_AT_ONCE
    return {
        "missing": wanted - sum(transaction in committed_us for _, transaction in found),
        "twice": sum(found.values()) - len(found),
        "out_of_order": out_of_order,
        "torn": sum(len(of) > 1 for of in places.values()),
    }


def _of_job(path: Path) -> Written:
    table = DeltaTable(str(path)).to_pyarrow_table(columns=["batch", "Id", "Updated"])
    rows = zip(*(table[name].to_pylist() for name in ("batch", "Id", "Updated")), strict=True)
    # Within a batch the rows are in one file, as they were written.
    for batch, key, updated in sorted(rows, key=lambda row: row[0]):
        yield batch, key, transaction_of(updated)


def _of_tidegate(path: Path) -> Written:
    names = ("release", "ordinal", "key", "new_values")
    table = DeltaTable(str(path)).to_pyarrow_table(columns=list(names))
    rows = zip(*(table[name].to_pylist() for name in names), strict=True)
    for release, _, key, values in sorted(rows, key=lambda row: row[:2]):
        yield release, key["Id"], transaction_of(str(values["Updated"]))


def _used(process: ChildProcess, is_done: Callable[[], bool]) -> dict[str, float]:
    """Start a process; return its seconds and CPU seconds, with those of its JVM, until it is done.

    Ends this program if the other one ends before, or takes ten minutes.
    """
    began, cpu_s = time.monotonic(), 0.0
    process.start()
    while not is_done():
        cpu_s = max(cpu_s, tree_cpu_s(process.pid))
        now_s = time.monotonic() - began
        if now_s > _PATIENCE_S or not (process.is_running or is_done()):
            sys.exit(f"{process.spec.name} has not ended well: {process.log_tail(20)}")
        time.sleep(_POLL_S)
    return {"wall_s": time.monotonic() - began, "cpu_s": cpu_s}


def tree_cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process and those below it; 0 if it has ended."""
    with contextlib.suppress(psutil.Error):
        below = psutil.Process(pid).children(recursive=True)
        return sum(map(cpu_seconds, (pid, *(process.pid for process in below))))
    return 0.0
