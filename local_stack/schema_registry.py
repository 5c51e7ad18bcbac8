"""One schema registry with the Confluent-compatible API, in memory.

Its content lives as long as the process.  Whoever restarts a stack on kept data must register the
same schemas in the same order again, or start afresh: ids are handed out in order of registration.
It is ready when its list of subjects answers.
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
    """A registry that logs below `data_dir`."""

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
        """End the registry; what was registered is gone."""
        if self.process is not None:
            self.process.stop()

    def _answers(self) -> bool:
        try:
            with _OPENER.open(f"{self.url}/subjects", timeout=CHECK_DEADLINE_S) as answer:
                return bool(answer.status == http.client.OK)
        except (urllib.error.URLError, http.client.HTTPException, OSError):
            return False
