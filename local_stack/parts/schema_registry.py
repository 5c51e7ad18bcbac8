"""One schema registry with the Confluent-compatible API and a database file in its data folder.

After a restart on the same folder every schema has the same id, as the kept records in Kafka need
it.  It is ready when it answers the request for its subjects.
"""

from __future__ import annotations

import http.client
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from tidegate.local_stack.parts.class_archives import ClassOptions, class_archives
from tidegate.local_stack.parts.jvm_parts import JvmParts
from tidegate.local_stack.parts.ports import HOST
from tidegate.local_stack.parts.process import GRACE_MS, ChildProcess, ProcessSpec
from tidegate.program.java import Java

REGISTRY = "registry"

# 7 s on two idle cores.
READY_DEADLINE_S = 120.0
CHECK_DEADLINE_S = 2.0

# No proxy from the environment for this machine.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(slots=True)
class SchemaRegistry:
    """A registry that keeps its schemas and its log below `data_dir`."""

    java: Java
    parts: JvmParts
    data_dir: Path
    port: int
    cancelled: threading.Event
    classes: ClassOptions = field(default_factory=class_archives)
    grace_ms: int = GRACE_MS
    """From SIGTERM to SIGKILL."""
    process: ChildProcess | None = None

    @property
    def url(self) -> str:
        """The address for `schema.registry.url`."""
        return f"http://{HOST}:{self.port}/apis/ccompat/v7"

    @property
    def log(self) -> Path:
        """The registry's log file."""
        return self.data_dir / "registry.log"

    def start(self) -> None:
        """Start, and return when the registry answers."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.process = ChildProcess(
            ProcessSpec(
                name="the schema registry",
                command=[
                    str(self.java.program),
                    *self.classes.options(REGISTRY),
                    "-Xmx256m",
                    "-XX:+UseSerialGC",
                    "-XX:TieredStopAtLevel=1",  # a handful of requests: start fast, stay small
                    "-Djava.awt.headless=true",
                    f"-Dquarkus.http.host={HOST}",
                    f"-Dquarkus.http.port={self.port}",
                    # The "in memory" kind is an H2 database, and H2 can live in a file as well.
                    f"-Dquarkus.datasource.jdbc.url=jdbc:h2:file:{self.data_dir / 'schemas'}",
                    "-Dquarkus.datasource.jdbc.initial-size=1",
                    "-Dquarkus.datasource.jdbc.min-size=1",
                    "-Dquarkus.log.level=WARN",
                    "-Dquarkus.log.console.color=false",
                    "-jar",
                    str(self.parts.registry_jar),
                ],
                log=self.log,
                folder=self.data_dir,
                grace_ms=self.grace_ms,
            ),
            cancelled=self.cancelled,
        )
        self.process.start()
        self.process.wait_ready(self._answers, deadline_s=READY_DEADLINE_S)

    def stop(self) -> None:
        """Stop the registry; its schemas are kept."""
        if self.process is not None:
            self.process.stop()

    def _answers(self) -> bool:
        try:
            with _OPENER.open(f"{self.url}/subjects", timeout=CHECK_DEADLINE_S) as answer:
                return bool(answer.status == http.client.OK)
        except (urllib.error.URLError, http.client.HTTPException, OSError):
            return False
