"""One schema registry with the Confluent-compatible API, its content in a file in its data folder.

A restart on the same folder hands out the same schema ids again, which records in Kafka's kept data
carry.  It is ready when its list of subjects answers.
"""

from __future__ import annotations

import http.client
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.local_stack.ports import HOST
from tidegate.local_stack.process import ChildProcess, ProcessSpec

if TYPE_CHECKING:
    import threading
    from pathlib import Path

    from tidegate.local_stack.java import Java
    from tidegate.local_stack.jvm_parts import JvmParts

__all__ = ["SchemaRegistry"]

# 7 s on two idle cores.
READY_DEADLINE_S = 120.0
CHECK_DEADLINE_S = 2.0

# A proxy from the environment must not be asked for our own machine.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(slots=True)
class SchemaRegistry:
    """A registry that keeps its schemas and its log below `data_dir`."""

    java: Java
    parts: JvmParts
    data_dir: Path
    port: int
    cancelled: threading.Event
    process: ChildProcess | None = None

    @property
    def url(self) -> str:
        """The address for `schema.registry.url`."""
        return f"http://{HOST}:{self.port}/apis/ccompat/v7"

    @property
    def log(self) -> Path:
        """What the registry says."""
        return self.data_dir / "registry.log"

    def start(self) -> None:
        """Start, and return when the registry answers."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.process = ChildProcess(
            ProcessSpec(
                name="the schema registry",
                command=[
                    str(self.java.program),
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
            ),
            cancelled=self.cancelled,
        )
        self.process.start()
        self.process.wait_ready(self._answers, deadline_s=READY_DEADLINE_S)

    def stop(self) -> None:
        """End the registry; what was registered stays."""
        if self.process is not None:
            self.process.stop()

    def _answers(self) -> bool:
        try:
            with _OPENER.open(f"{self.url}/subjects", timeout=CHECK_DEADLINE_S) as answer:
                return bool(answer.status == http.client.OK)
        except (urllib.error.URLError, http.client.HTTPException, OSError):
            return False
