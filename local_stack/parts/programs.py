"""Producer workers and the consumer as child processes, with their settings in the environment.

Settings of these programs in the caller's environment are removed, so that a run does not depend
on where it is started.

At debug level they log a JSON line `{"event": "step", "step": …}` when a step of a cycle begins.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.local_stack.parts.class_archives import SPARK, ClassOptions, class_archives
from tidegate.local_stack.parts.installed_java import find_java
from tidegate.local_stack.parts.jvm_parts import fetched_jvm_parts
from tidegate.local_stack.parts.process import ChildProcess, ProcessSpec
from tidegate.program.java import QUICK_START

if TYPE_CHECKING:
    from tidegate.local_stack.parts.kafka_broker import SecureListener


@dataclass(frozen=True, slots=True)
class DatabaseName:
    """A database's address and resource name."""

    address: str
    """host:port of the simulator or emulator."""
    project: str = "local"
    instance: str = "bank"
    database: str = "bank"

    @property
    def path(self) -> str:
        """The database's full resource name."""
        return f"projects/{self.project}/instances/{self.instance}/databases/{self.database}"


def write_settings_file(file: Path, settings: Mapping[str, str | Mapping[str, object]]) -> None:
    """Write settings by name; only this user can read the file, since options may be secrets."""
    lines = [f"{name} = {as_toml(value)}\n" for name, value in settings.items()]
    file.touch(mode=0o600)
    file.write_text("".join(lines), encoding="utf-8")


def as_toml(value: object) -> str:
    """Return a text, number, truth value, or a table of these, as TOML writes it in one line."""
    match value:
        case bool() | int() | float():
            return json.dumps(value)
        case str():
            # TOML's texts are JSON's, but for one character that JSON leaves unescaped.
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case dict():
            pairs = (f"{as_toml(str(name))} = {as_toml(member)}" for name, member in value.items())
            return "{" + ", ".join(pairs) + "}"
        case _:
            raise TypeError(type(value).__name__)


_TAIL_BYTES = 65_536
_POLL_S = 0.002
NO_STEP = "start"
"""The step of a program that has not logged one yet."""


def step_of(line: bytes) -> str | None:
    """Return the step that a log line begins, or None for any other line."""
    if b'"step"' not in line:
        return None
    try:
        entry = json.loads(line[line.index(b"{") :])
    except ValueError:
        return None
    if not isinstance(entry, dict) or entry.get("event") != "step":
        return None
    return str(entry.get("step"))


def last_step(log: Path, *, since: int = 0) -> str:
    """Return the last step in a log after byte `since`; "start" if there is none."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(since, size - _TAIL_BYTES))
            lines = file.read().splitlines()
    except FileNotFoundError:
        return NO_STEP
    return next((step for line in reversed(lines) if (step := step_of(line))), NO_STEP)


@dataclass(slots=True)
class StepFollower:
    """Reads the step lines that are added to a log after byte `position`."""

    log: Path
    position: int
    _rest: bytes = b""

    @classmethod
    def at_end(cls, log: Path) -> StepFollower:
        """Return a follower of the lines that are written from now on."""
        return cls(log, log.stat().st_size if log.exists() else 0)

    def new_steps(self) -> list[str]:
        """Return the steps begun since the last call."""
        if not self.log.exists():
            return []
        with self.log.open("rb") as file:
            file.seek(self.position)
            added = file.read()
        self.position += len(added)
        *lines, self._rest = (self._rest + added).split(b"\n")
        return [step for line in lines if (step := step_of(line))]


def wait_for_step(
    follower: StepFollower,
    *,
    accept: Callable[[str], bool],
    go_on: Callable[[], bool],
    deadline_s: float,
) -> bool:
    """Return True when an accepted step begins; False at the deadline or when `go_on` is."""
    end = time.monotonic() + deadline_s
    while go_on() and time.monotonic() < end:
        if any(accept(step) for step in follower.new_steps()):
            return True
        time.sleep(_POLL_S)
    return False


_PRODUCER = "TIDEGATE_PRODUCER_"
_CONSUMER = "TIDEGATE_CONSUMER_"
_CONSOLE = "TIDEGATE_CONSOLE_"
_GRACE_MS = 30_000
CONSUMER_NAME = "consumer"
"""The name of the consumer's program, unless it has another."""
_TABLES = frozenset({"KAFKA_OPTIONS", "SOURCE"})
"""Settings that the environment has as JSON, and a file as tables."""


def quick_start(classes: ClassOptions | None = None) -> str:
    """Return the Java options of a Spark session that lives for minutes."""
    return shlex.join([*QUICK_START, *(classes or class_archives()).options(SPARK)])


@dataclass(slots=True)
class Program:
    """A program that can be killed and restarted with the same name and log."""

    spec: ProcessSpec
    process: ChildProcess = field(init=False)
    log_began: int = 0
    """The byte of the log where the running process began to write."""

    def __post_init__(self) -> None:
        """Prepare, without starting."""
        self.process = ChildProcess(self.spec)

    @property
    def name(self) -> str:
        """The name in reports."""
        return self.spec.name

    @property
    def step(self) -> str:
        """The last step that the running process logged; "start" before the first one."""
        return last_step(self.spec.log, since=self.log_began)

    @property
    def has_begun(self) -> bool:
        """Whether the running process, or the last one, has logged a step."""
        return self.step != NO_STEP

    def start(self) -> None:
        """Start, or start again after a kill."""
        self.log_began = self.spec.log.stat().st_size if self.spec.log.exists() else 0
        self.process = ChildProcess(self.spec)
        self.process.start()

    def kill(self) -> str:
        """Send SIGKILL; return the step that it was in."""
        self.process.kill()
        return self.step

    def stop(self) -> int | None:
        """Stop it in order; return its exit code, or None if it was never started."""
        self.process.stop()
        return self.process.exit_code


@dataclass(frozen=True, slots=True)
class Programs:
    """Makes the programs of one pipeline; they share stream, prefix, output and addresses."""

    folder: Path
    bootstrap_servers: str
    registry_url: str
    spanner_address: str
    database: DatabaseName
    stream: str
    prefix: str
    log_level: str = "debug"
    more: Mapping[str, str] = field(default_factory=dict)
    """Further environment variables of all programs."""
    secure: SecureListener | None = None
    """The listener that the programs use; clients that only observe use `bootstrap_servers`."""
    source: str = ""
    """The producer's table `[source]` as JSON, in place of a Spanner database."""
    metrics_ports: Mapping[str, int] = field(default_factory=dict)
    """Where programs serve their metrics, by their names; others serve none."""
    has_iceberg: bool = False
    """Whether the consumer's Spark has what its Iceberg sinks need."""

    @property
    def output(self) -> Path:
        """The consumer's output folder."""
        return self.folder / "output"

    @property
    def checkpoint(self) -> Path:
        """The consumer's checkpoint folder."""
        return self.folder / "checkpoint"

    @property
    def producer_file(self) -> Path:
        """The settings file of the producer's commands."""
        return self.folder / "producer.toml"

    @property
    def audit_file(self) -> Path:
        """The result of the last audit, for the console."""
        return self.folder / "audit.json"

    @property
    def consumer_file(self) -> Path:
        """The settings file of the consumer's commands."""
        return self.folder / "consumer.toml"

    def write_settings_files(self) -> None:
        """Write the files, for commands that are typed while the programs run."""
        emulator = {} if self.source else {"SPANNER_EMULATOR_HOST": self.spanner_address}
        for file, settings in (
            (self.producer_file, {**self._producer_settings(), **emulator}),
            (self.consumer_file, self._consumer_settings()),
        ):
            tables = {name: json.loads(settings[name]) for name in _TABLES & settings.keys()}
            write_settings_file(
                file, {name.lower(): setting for name, setting in {**settings, **tables}.items()}
            )

    def _producer_settings(self) -> dict[str, str]:
        """Return the settings that all commands of the producer share."""
        return {
            **self._kafka(),
            "REGISTRY_URL": self.registry_url,
            **self._source(),
            "PREFIX": self.prefix,
        }

    def worker(self, name: str, *, start: str) -> Program:
        """Return a producer worker that begins at `start` (RFC 3339) if the stream is new."""
        settings = {
            **self._producer_settings(),
            "WORKER": name,
            "START": start,
            "LOG_LEVEL": self.log_level,
            **self._metrics(name),
        }
        return self._program(
            name,
            module="tidegate.producer",
            settings={_PRODUCER + key: value for key, value in settings.items()},
        )

    def console(self, *, port: int) -> Program:
        """Return the console, which shows all of it on a port of this machine."""
        producer = {**self._producer_settings(), "LOG_LEVEL": "warning"}
        places = {name: f"127.0.0.1:{number}" for name, number in self.metrics_ports.items()}
        console = {
            "PORT": str(port),
            "OUTPUT": str(self.output),
            "AUDIT": str(self.audit_file),
            "CONSUMER_METRICS": places.pop(CONSUMER_NAME, ""),
            "WORKER_METRICS": ",".join(places.values()),
        }
        return self._program(
            "console",
            module="tidegate.producer",
            command="console",
            settings={
                **{_PRODUCER + key: value for key, value in producer.items()},
                **{_CONSOLE + key: value for key, value in console.items()},
            },
        )

    def _metrics(self, name: str) -> dict[str, str]:
        port = self.metrics_ports.get(name)
        return {} if port is None else {"METRICS_PORT": str(port)}

    def _consumer_settings(self) -> dict[str, str]:
        """Return the settings that all commands of the consumer share."""
        parts = fetched_jvm_parts()
        jars = () if parts is None else parts.spark_jars
        if parts is not None and self.has_iceberg:
            jars += parts.iceberg_jars
        return {
            **self._kafka(),
            "REGISTRY_URL": self.registry_url,
            "PREFIX": self.prefix,
            "OUTPUT": str(self.output),
            "CHECKPOINT": str(self.checkpoint),
            "JARS": ",".join(map(str, jars)),
            "JAVA_OPTIONS": quick_start(),
        }

    def consumer(self, name: str = CONSUMER_NAME) -> Program:
        """Return the consumer; needs a Java and the fetched JVM parts."""
        java = find_java()
        # A killed JVM leaves folders of megabytes: they go with the folder of the run.
        temporary = self.folder.absolute() / "programs" / name / "tmp"
        temporary.mkdir(parents=True, exist_ok=True)
        settings = {
            **self._consumer_settings(),
            "JAVA_OPTIONS": f"{quick_start()} {shlex.quote(f'-Djava.io.tmpdir={temporary}')}",
            "LOG_LEVEL": self.log_level,
            **self._metrics(name),
        }
        return self._program(
            name,
            module="tidegate.spark_consumer",
            settings={
                **{_CONSUMER + key: value for key, value in settings.items()},
                "JAVA_HOME": str(java.home),
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
        )

    def _source(self) -> dict[str, str]:
        """Return the settings that name the source."""
        if self.source:
            return {"SOURCE": self.source}
        return {
            "PROJECT": self.database.project,
            "INSTANCE": self.database.instance,
            "DATABASE": self.database.database,
            "CHANGE_STREAM": self.stream,
        }

    def _kafka(self) -> dict[str, str]:
        """Return the settings that name the broker."""
        if self.secure is None:
            return {"BOOTSTRAP_SERVERS": self.bootstrap_servers}
        return {
            "BOOTSTRAP_SERVERS": self.secure.bootstrap_servers,
            "KAFKA_OPTIONS": json.dumps(self.secure.client_options()),
        }

    def _program(
        self, name: str, *, module: str, settings: Mapping[str, str], command: str = "run"
    ) -> Program:
        folder = self.folder / "programs" / name
        folder.mkdir(parents=True, exist_ok=True)
        inherited = {
            key: value
            for key, value in os.environ.items()
            if not key.upper().startswith((_PRODUCER, _CONSUMER, _CONSOLE))
        }
        environ = {
            **inherited,
            "SPANNER_EMULATOR_HOST": self.spanner_address,
            **self.more,
            **settings,
        }
        return Program(
            ProcessSpec(
                name=name,
                command=[sys.executable, "-m", module, command],
                log=self.folder / "logs" / f"{name}.log",
                environ=environ,
                folder=folder,
                grace_ms=_GRACE_MS,
            )
        )
