"""The service `kafka` of the Compose file, without its image: Kafka's programs from their jars.

The image turns the variables of its environment into a settings file with a program of Kafka's own,
which is run here too, and so is the program that the health check's script starts.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from tests.images.buildah import STORAGE
from tidegate.local_stack.parts.installed_java import find_java
from tidegate.local_stack.parts.jvm_parts import fetch_jvm_parts, retrieve
from tidegate.local_stack.parts.process import ChildProcess, ProcessSpec

_PROGRAMS = {"kafka-broker-api-versions.sh": "org.apache.kafka.tools.BrokerApiVersionsCommand"}
"""What Kafka's scripts start."""

_CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
_LOGGING = ("log4j2.yaml", "tools-log4j2.yaml")
_READY_S = 120.0

_TOOLS = """\
<ivy-module version="2.0">
  <info organisation="tidegate" module="kafka-tools"/>
  <configurations><conf name="tools"/></configurations>
  <dependencies>
    <dependency org="org.apache.kafka" name="kafka-tools" rev="{version}" conf="tools->default"
      transitive="false"/>
  </dependencies>
</ivy-module>
"""


def fetch_tools(version: str) -> Path:
    """Return Kafka's command line tools, which no other test needs; fetch them the first time."""
    jar = STORAGE / f"kafka-tools-{version}.jar"
    if not jar.exists():
        retrieve(
            find_java(),
            _TOOLS.format(version=version).encode(),
            pattern="[artifact]-[revision].[ext]",
            work=STORAGE,
            cache=STORAGE / "ivy",
            what="Kafka's tools",
            report=lambda _: None,
        )
    return jar


@dataclass(slots=True)
class KafkaService:
    """A broker with the environment of the service; its data is below `folder`."""

    environ: Mapping[str, str]
    health: Sequence[str]
    """The command of the health check."""
    folder: Path
    hosts: Path
    tools: Path
    process: ChildProcess | None = field(init=False, default=None)

    def start(self) -> None:
        """Start it as its image does, and return when the health check passes."""
        default, mounted, final = (self.folder / name for name in ("default", "mounted", "final"))
        for made in (default, mounted, final):
            made.mkdir(parents=True)
        for name in _LOGGING:
            (default / name).touch()
        self._run(
            "kafka.docker.KafkaDockerWrapper",
            *("setup", "--default-configs-dir", str(default)),
            *("--mounted-configs-dir", str(mounted), "--final-configs-dir", str(final)),
        ).check_returncode()
        self.process = ChildProcess(
            ProcessSpec(
                name="the Kafka broker",
                command=self._java("kafka.Kafka", str(final / "server.properties")),
                log=self.folder / "kafka.log",
            ),
            cancelled=threading.Event(),
        )
        self.process.start()
        self.process.wait_ready(lambda: self.is_healthy, deadline_s=_READY_S)

    @property
    def is_healthy(self) -> bool:
        """Whether the health check passes now."""
        script, *arguments = self.health
        return self._run(_PROGRAMS[PurePosixPath(script).name], *arguments).returncode == 0

    def stop(self) -> None:
        """Stop it."""
        if self.process is not None:
            self.process.stop()

    def _java(self, program: str, *arguments: str) -> list[str]:
        java = find_java()
        jars = f"{fetch_jvm_parts(java).broker_class_path}:{self.tools}"
        hosts = f"-Djdk.net.hosts.file={self.hosts}"
        return [str(java.program), "-Xmx512m", hosts, "-cp", jars, program, *arguments]

    def _run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        data = self.folder / "data"
        environ = {
            **self.environ,
            "CLUSTER_ID": _CLUSTER_ID,
            # The volume of the service.
            "KAFKA_LOG_DIRS": str(data),
        }
        return subprocess.run(
            self._java(program, *arguments), env=environ, capture_output=True, check=False
        )
