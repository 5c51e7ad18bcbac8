"""From the start of the program to its first release, by step.

The program itself, as an operator starts it: Python, the JVM, the session, the query, the batch.
A topic holds some changes when it starts; the second run continues the checkpoint of the first, and
finds as many changes again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.consumer.feed import Feed, KafkaFeed
from benchmarks.consumer.large import broker
from tidegate.local_stack.parts.java import find_java
from tidegate.local_stack.parts.jvm_parts import fetch_jvm_parts

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

__all__ = ["measure", "registry"]

_TABLES = 2
_US = 1_000_000


def measure(options: argparse.Namespace, folder: str) -> list[dict[str, Any]]:
    """Return a line for each run."""
    found = []
    with broker(folder) as bootstrap_servers:
        for turn in range(options.runs):
            feed = Feed(f"start{turn}", tables=_TABLES, topic_partitions=2)
            kafka = KafkaFeed(bootstrap_servers, feed)
            for record in feed.opening():
                kafka.send(record)
            with registry(feed) as registry_url:
                for way in ("new", "continued"):
                    _publish(kafka, options.changes)
                    flags = {
                        "bootstrap-servers": bootstrap_servers,
                        "registry-url": registry_url,
                        "prefix": feed.prefix,
                        "output": f"{folder}/{feed.prefix}/output",
                        "checkpoint": f"{folder}/{feed.prefix}/checkpoint",
                        "jars": ",".join(map(str, fetch_jvm_parts(find_java()).spark_jars)),
                        "log-level": "debug",
                    }
                    log = Path(folder) / f"{feed.prefix}-{way}.log"
                    found.append({"checkpoint": way, **_seconds(flags, log)})
    return found


def _publish(kafka: KafkaFeed, changes: int) -> None:
    """Publish changes that were committed just now, and a heartbeat after them."""
    now_us = time.time_ns() // 1_000
    for number in range(changes):
        kafka.send(kafka.feed.change(now_us + number))
    kafka.send(kafka.feed.beat(now_us + changes))
    kafka.flush()


def _seconds(flags: dict[str, str], log: Path) -> dict[str, Any]:
    """Run the program until it has written a release; return when it reached what, in seconds."""
    command = [str(Path(sys.executable).parent / "tidegate-consumer"), "run"]
    command += [part for name, value in flags.items() for part in (f"--{name}", value)]
    begun = time.time()
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=os.environ)
        reached: dict[str, float] = {}
        try:
            while "batch" not in reached:
                if process.poll() is not None:
                    raise RuntimeError(log.read_text()[-2_000:])
                time.sleep(0.2)
                reached = _reached(log, begun)
        finally:
            process.terminate()
            process.wait(60)
    return reached


def _reached(log: Path, begun: float) -> dict[str, float]:
    """Return the seconds until the session was there, each step of the release, and its end."""
    found: dict[str, float] = {}
    for text in log.read_text().splitlines():
        if not (text.startswith("{") and text.endswith("}")):
            continue
        line = json.loads(text)
        at = datetime.fromisoformat(line["timestamp"]).timestamp() - begun
        if line["event"] == "start":
            found["session"] = round(at, 1)
        elif line["event"] == "step":
            found.setdefault(line["step"], round(at, 1))
        elif line["event"] == "batch" and line["releases"]:
            found["batch"] = round(at, 1)
    return found


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
