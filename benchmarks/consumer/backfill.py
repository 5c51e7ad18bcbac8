"""One release of all rows that tables had at the stream's start: time, memory and disk by sink.

The program itself, as an operator starts it, with the memory that it has by default.  The rows are
in the topics of a real broker before it starts; with `until = caught-up` it ends by itself.  Each
run has a checkpoint and an output of its own, and reads the same topics.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil

from benchmarks.consumer.feed import Feed, KafkaFeed
from benchmarks.measuring import MIB, memory_bytes
from tidegate.local_stack.parts.installed_java import find_java
from tidegate.local_stack.parts.jvm_parts import fetch_jvm_parts
from tidegate.local_stack.parts.kafka_broker import KafkaBroker
from tidegate.local_stack.parts.process import choose_ports

SINKS = (
    "changelog,mirror", "changelog", "mirror", "history", "parquet", "topic", "topic:transaction",
    "datastream_files", "transactions", "parquet_transactions",
)  # fmt: skip
"""The sinks of each run, as the setting names them; the first ones are the default.

Behind a colon stands the order of the ordered topic.
"""

_STREAM = "projects/p/instances/i/databases/d/changeStreams/everything"
_TICK_S = 1.0
_DISK_EVERY = 2
_DAY_US = 86_400_000_000
_LAST_LINES = 3


def measure(options: argparse.Namespace, folder: str) -> list[dict[str, Any]]:
    """Return a line for each number of rows and choice of sinks."""
    found = []
    with broker(folder) as bootstrap_servers:
        for rows in options.rows:
            feed = _published(bootstrap_servers, rows)
            with registry(feed) as registry_url:
                for turn, sinks in enumerate(options.sinks):
                    place = Path(folder) / f"{feed.prefix}-{turn}"
                    flags = {
                        "bootstrap-servers": bootstrap_servers,
                        "registry-url": registry_url,
                        "prefix": feed.prefix,
                        "output": f"{place}/output",
                        "checkpoint": f"{place}/checkpoint",
                        "jars": ",".join(map(str, fetch_jvm_parts(find_java()).spark_jars)),
                        "until": "caught-up",
                        "log-level": "debug",
                        "sinks": sinks.partition(":")[0],
                    }
                    if flags["sinks"] == "topic":
                        flags["ordered-topic"] = f"ordered-{rows}-{turn}"
                        flags["ordered-topic-order"] = sinks.partition(":")[2] or "total"
                    found.append({"rows": rows, "sinks": sinks, **_run(flags, place, options)})
                    print(json.dumps(found[-1]), file=sys.stderr, flush=True)
                    shutil.rmtree(place, ignore_errors=True)
    return found


@contextmanager
def broker(folder: str) -> Iterator[str]:
    """Run a broker; yields its address."""
    java = find_java()
    ports = choose_ports({"port": 0, "controller_port": 0})
    one = KafkaBroker(
        java=java, parts=fetch_jvm_parts(java), data_dir=Path(folder) / "kafka",
        cancelled=threading.Event(), is_lasting=True, **ports,
    )  # fmt: skip
    try:
        one.start()
        yield one.bootstrap_servers
    finally:
        one.stop()


@contextmanager
def registry(feed: Feed) -> Iterator[str]:
    """Serve the feed's schemas as a registry does."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            _, _, number = self.path.partition("/schemas/ids/")
            schema = feed.schema(int(number.partition("?")[0])) if number else None
            body = json.dumps([] if schema is None else {"schema": json.dumps(schema)}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _published(bootstrap_servers: str, rows: int) -> Feed:
    feed = Feed(f"backfill{rows}", stream=_STREAM)
    kafka = KafkaFeed(bootstrap_servers, feed)
    for record in feed.opening():
        kafka.send(record)
    now_us = time.time_ns() // 1_000
    for record in feed.backfilled(rows, us=now_us):
        kafka.send(record)
    # A day ahead: the run ends when the watermark has passed its own begin.
    kafka.send(feed.beat(now_us + _DAY_US))
    kafka.flush()
    return feed


@dataclass
class _Usage:
    """What the program and its Java use; `take` looks once more."""

    java_peak_mb: int = 0
    python_peak_mb: int = 0
    disk_peak_mb: int = 0
    """Spark's own files and what waits in the checkpoint."""
    cpu: dict[int, float] = field(default_factory=dict)

    def take(self, program: psutil.Process) -> None:
        """Look at the processes that run."""
        try:
            every = [program, *program.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        for one in every:
            try:
                times, is_java = one.cpu_times(), "java" in one.name()
                peak_mb = memory_bytes("VmHWM", one.pid) // MIB
            except (psutil.Error, OSError):
                continue
            self.cpu[one.pid] = times.user + times.system
            # A child that Java has just forked has Java's memory under the name of a thread.
            if one.pid == program.pid:
                self.python_peak_mb = max(self.python_peak_mb, peak_mb)
            elif is_java:
                self.java_peak_mb = max(self.java_peak_mb, peak_mb)

    def take_disk(self, *folders: Path) -> None:
        """Look at the files below some folders."""
        self.disk_peak_mb = max(self.disk_peak_mb, sum(map(_size_mb, folders)))


def _run(flags: dict[str, str], place: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Run the program to its end; return how it ended and what it took."""
    command = [str(Path(sys.executable).parent / "tidegate-consumer"), "run"]
    command += [part for name, value in flags.items() for part in (f"--{name}", value)]
    place.mkdir(parents=True)
    log, local = place / "log", place / "local"
    environment = {**os.environ, "SPARK_LOCAL_DIRS": str(local)}
    if options.driver_memory:
        environment["SPARK_DRIVER_MEMORY"] = options.driver_memory
    usage = _Usage()
    begun = time.time()
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
        seen = psutil.Process(process.pid)
        looks = 0
        try:
            while process.poll() is None and time.time() - begun < options.seconds_max:
                usage.take(seen)
                if looks % _DISK_EVERY == 0:
                    usage.take_disk(local, Path(flags["checkpoint"]))
                looks += 1
                time.sleep(_TICK_S)
        finally:
            _end(process)
    if options.logs:
        Path(options.logs).mkdir(parents=True, exist_ok=True)
        shutil.copy(log, Path(options.logs) / f"{place.name}.log")
    steps = _steps(_lines(log))
    return {
        "outcome": "done" if process.returncode == 0 else _failure(log, process.returncode),
        "seconds": round(time.time() - begun),
        "release_seconds": round(sum(steps.values())),
        "steps": steps,
        "cpu_seconds": round(sum(usage.cpu.values())),
        "java_peak_mb": usage.java_peak_mb,
        "python_peak_mb": usage.python_peak_mb,
        "disk_peak_mb": usage.disk_peak_mb,
        "output_mb": _size_mb(Path(flags["output"])),
        "load": round(os.getloadavg()[1], 1),
    }


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _lines(log: Path) -> list[dict[str, Any]]:
    texts = log.read_text(errors="replace").splitlines()
    return [json.loads(one) for one in texts if one.startswith("{") and one.endswith("}")]


def _steps(lines: list[dict[str, Any]]) -> dict[str, float]:
    """Return how long the steps of the last release took, to the end of its batch, in seconds."""
    found: dict[str, float] = {}
    last = next((i for i in reversed(range(len(lines))) if _is_release(lines[i])), None)
    if last is None:
        return found
    for one, following in zip(lines[last:], lines[last + 1 :], strict=False):
        if one["event"] == "batch":
            break
        if one["event"] == "step":
            seconds = (_at(following) - _at(one)).total_seconds()
            found[one["step"]] = round(found.get(one["step"], 0.0) + seconds, 1)
    return found


def _is_release(line: dict[str, Any]) -> bool:
    return line["event"] == "step" and line["step"] == "release"


def _at(line: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(line["timestamp"])


def _failure(log: Path, code: int | None) -> str:
    texts = log.read_text(errors="replace").splitlines()
    return f"exit {code}: " + " | ".join(one[:300] for one in texts[-_LAST_LINES:])


def _size_mb(folder: Path) -> int:
    size = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                size += (Path(root) / name).stat().st_blocks * 512
            except OSError:
                continue
    return size // MIB
