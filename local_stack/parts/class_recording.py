"""Makes the class archives: starts each Java program once, with the option to write one.

It takes half a minute, once for an installation.  A program that cannot be recorded starts without
an archive: that is reported and is not an error.

`python -m tidegate.local_stack.parts.class_recording` is Spark's part: it starts a session as a run
does, does the work of the consumer's first batch in it, and waits until Java has ended.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tidegate.local_stack.errors import LocalStackError, PartFailedError
from tidegate.local_stack.parts.class_archives import SILENT, SPARK, ClassArchives, class_archives
from tidegate.local_stack.parts.jvm_parts import JvmParts, find_ivy_jar, only_one
from tidegate.local_stack.parts.kafka_broker import BROKER, FORMATTER, KafkaBroker
from tidegate.local_stack.parts.process import ChildProcess, choose_ports
from tidegate.local_stack.parts.programs import quick_start
from tidegate.local_stack.parts.stack import REGISTRY, SchemaRegistry
from tidegate.program.java import Java
from tidegate.spark_consumer.sinks.sql import quoted
from tidegate.spark_consumer.spark.session import local_session

_SPARK_DEADLINE_S = 300
_WRITING_MS = 120_000
"""For how long a Java program may write its archive; 10 s were too few on a busy machine."""
_IN_ORDER = (0, 128 + signal.SIGTERM)
"""Exit codes of a Java program that has written its archive; after others it may be cut short."""


@dataclass(frozen=True, slots=True)
class _Recording:
    """Makes programs write their archives below `folder`."""

    folder: Path

    def options(self, program: str) -> tuple[str, ...]:
        return (f"-XX:ArchiveClassesAtExit={self.archive(program)}", *SILENT)

    def archive(self, program: str) -> Path:
        return self.folder / f"{program}.jsa"


@dataclass(frozen=True, slots=True)
class _Programs:
    """Runs each program from its start to its end, below `scratch`."""

    java: Java
    parts: JvmParts
    recording: _Recording
    scratch: Path
    cancelled: threading.Event

    def kafka(self) -> None:
        ports = choose_ports({"kafka_port": 0, "controller_port": 0})
        broker = KafkaBroker(
            java=self.java,
            parts=self.parts,
            data_dir=self.scratch / "kafka",
            port=ports["kafka_port"],
            controller_port=ports["controller_port"],
            cancelled=self.cancelled,
            classes=self.recording,
            grace_ms=_WRITING_MS,
        )
        try:
            broker.start()
        finally:
            broker.stop()
        _require_order(broker.process)

    def registry(self) -> None:
        registry = SchemaRegistry(
            java=self.java,
            parts=self.parts,
            data_dir=self.scratch / "registry",
            port=choose_ports({"registry_port": 0})["registry_port"],
            cancelled=self.cancelled,
            classes=self.recording,
            grace_ms=_WRITING_MS,
        )
        try:
            registry.start()
        finally:
            registry.stop()
        _require_order(registry.process)

    def spark(self) -> None:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "tidegate.local_stack.parts.class_recording"),
                *("--jars", ",".join(map(str, self.parts.spark_jars))),
                *("--folder", str(self.scratch / "spark")),
                f"--java-options={quick_start(self.recording)}",
            ],
            env={**os.environ, "JAVA_HOME": str(self.java.home), "SPARK_LOCAL_IP": "127.0.0.1"},
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=_SPARK_DEADLINE_S,
            check=False,
        )
        if done.returncode != 0:
            raise PartFailedError(f"Spark ended with {done.returncode}: {done.stderr[-400:]}")


def are_class_archives_made(java: Java, parts: JvmParts) -> bool:
    """Whether the archives of this Python's programs are there and fit."""
    return class_archives().are_of(_key(java, parts))


def make_class_archives(
    java: Java,
    parts: JvmParts,
    *,
    report: Callable[[str], None] = lambda _line: None,
) -> list[str]:
    """Make the archives of this Python's programs; return what could not be recorded, and why.

    `report` gets a line for each program.  Of two calls at once the second makes nothing.
    """
    archives, key = class_archives(), _key(java, parts)
    folder = archives.folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with only_one(folder.with_suffix(".lock"), report=report):
        if archives.are_of(key):
            return []
        work = folder.with_suffix(".part")
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        faults = _record_into(work, java=java, parts=parts, report=report)
        ClassArchives(work).seal(key)
        shutil.rmtree(folder, ignore_errors=True)
        work.rename(folder)
    return faults


def _record_into(
    work: Path, *, java: Java, parts: JvmParts, report: Callable[[str], None]
) -> list[str]:
    """Record all programs at once: each waits for its Java's disk and single threads."""
    recording, cancelled = _Recording(work), threading.Event()

    def record(name: str, run: Callable[[], None], *archives: str) -> str | None:
        try:
            run()
        except (LocalStackError, OSError, subprocess.TimeoutExpired) as error:
            for archive in archives:
                recording.archive(archive).unlink(missing_ok=True)
            return f"{name}: {error}"
        report(name)
        return None

    with tempfile.TemporaryDirectory(prefix="tidegate-classes-") as scratch:
        programs = _Programs(java, parts, recording, Path(scratch), cancelled)
        with ThreadPoolExecutor() as pool:
            recorded = [
                pool.submit(record, "Spark", programs.spark, SPARK),
                pool.submit(record, "Kafka", programs.kafka, FORMATTER, BROKER),
                pool.submit(record, "the schema registry", programs.registry, REGISTRY),
            ]
            try:
                faults = [one.result() for one in recorded]
            except BaseException:
                cancelled.set()
                raise
    return [fault for fault in faults if fault is not None]


def _require_order(process: ChildProcess | None) -> None:
    if process is not None and process.exit_code not in _IN_ORDER:
        raise PartFailedError(f"{process.spec.name} ended with {process.exit_code}")


def _key(java: Java, parts: JvmParts) -> str:
    """Return a text that changes when archives have to be made again."""
    modules = (java.home / "lib" / "modules").stat()
    return " ".join(
        [
            *(str(java.home), str(modules.st_size), str(modules.st_mtime_ns)),
            *(str(parts.root), str(find_ivy_jar().parent), version("pyspark")),
        ]
    )


def main(arguments: list[str] | None = None) -> int:
    """Run; return Java's exit code."""
    options = _options(arguments)
    spark = local_session(
        master="local[2]",
        packages="",
        jars=options.jars,
        app_name="tidegate-start",
        java_options=options.java_options,
    )
    table = quoted("delta", options.folder)
    spark.range(100).selectExpr("id", "sha2(string(id), 256) AS text").write.format("delta").save(
        options.folder
    )
    spark.range(50, 150).createOrReplaceTempView("changes")
    spark.sql(
        f"MERGE INTO {table} AS held USING changes ON held.id = changes.id "  # noqa: S608 - a folder of our own
        "WHEN MATCHED THEN UPDATE SET text = 'seen' "
        "WHEN NOT MATCHED THEN INSERT (id, text) VALUES (id, 'new')"
    )
    spark.sql(f"SELECT text, count(*), max(id) FROM {table} GROUP BY text ORDER BY text").collect()  # noqa: S608 - as above
    java: Any = spark.sparkContext._gateway.proc  # type: ignore[union-attr]  # noqa: SLF001 - pyspark has no way of its own
    spark.stop()
    java.stdin.close()
    return int(java.wait())


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Start Spark, let it work a little, and end it.")
    parser.add_argument("--jars", required=True, help="Jars, with commas")
    parser.add_argument("--folder", required=True, help="Where its table is written")
    parser.add_argument("--java-options", required=True, help="Options of its Java")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
