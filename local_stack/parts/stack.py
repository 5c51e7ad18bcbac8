"""Registry, simulator and broker together: started in parallel, stopped in order.

The simulator's code is not imported.

Invariant: after `stop`, and after a part failed to start, no part runs.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tidegate.local_stack.errors import PartFailedError
from tidegate.local_stack.parts.class_archives import ClassOptions, class_archives
from tidegate.local_stack.parts.installed_java import find_java, require_java_home
from tidegate.local_stack.parts.jvm_parts import JvmParts, fetch_jvm_parts
from tidegate.local_stack.parts.kafka_broker import KafkaBroker, SecureListener
from tidegate.local_stack.parts.process import (
    HOST,
    Cancelled,
    ProcessSpec,
    Service,
    choose_ports,
)
from tidegate.program.java import Java

if TYPE_CHECKING:
    from tidegate.local_stack.config import LocalStackConfig

REGISTRY = "registry"

# 7 s on two idle cores.
_REGISTRY_DEADLINE_S = 120.0
_CHECK_DEADLINE_S = 2.0

# No proxy from the environment for this machine.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(slots=True, kw_only=True)
class SchemaRegistry(Service):
    """A registry that keeps its schemas and its log below `data_dir`.

    It has the Confluent-compatible API and a database file.  After a restart on the same folder
    every schema has the same id, as the kept records in Kafka need it.
    """

    java: Java
    parts: JvmParts
    classes: ClassOptions = field(default_factory=class_archives)

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
        self.run(
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
            is_ready=self._answers,
            deadline_s=_REGISTRY_DEADLINE_S,
        )

    def _answers(self) -> bool:
        try:
            with _OPENER.open(f"{self.url}/subjects", timeout=_CHECK_DEADLINE_S) as answer:
                return bool(answer.status == http.client.OK)
        except (urllib.error.URLError, http.client.HTTPException, OSError):
            return False


_SIMULATOR_DEADLINE_S = 60.0


@dataclass(slots=True, kw_only=True)
class SpannerSimulator(Service):
    """A simulator with its logs below `data_dir`, and its databases too if it keeps them.

    When it is ready it prints its addresses, one JSON line on standard output.
    """

    control_port: int
    seed: int = 0
    stream_partitions: int = 4
    equal_timestamps: float = 0.0
    keeps_databases: bool = False
    """Whether a start on the same `data_dir` finds the databases of the last one."""
    address: str = ""
    control_address: str = ""

    @property
    def log(self) -> Path:
        """The file of its standard error."""
        return self.data_dir / "simulator.log"

    def start(self) -> None:
        """Start, and return when the simulator has printed its addresses."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "spanner_simulator", "--host", HOST]
        command += ["--port", str(self.port), "--control-port", str(self.control_port)]
        command += ["--seed", str(self.seed), "--stream-partitions", str(self.stream_partitions)]
        if self.equal_timestamps:
            command += ["--equal-timestamps", str(self.equal_timestamps)]
        if self.keeps_databases:
            command += ["--data", str(self.data_dir / "databases")]
        stdout = self.data_dir / "simulator.json"
        self.run(
            ProcessSpec(name="the simulator", command=command, log=self.log, stdout=stdout),
            is_ready=lambda: stdout.read_bytes().endswith(b"\n"),
            deadline_s=_SIMULATOR_DEADLINE_S,
        )
        self.address, self.control_address = _addresses(stdout.read_text())


def _addresses(printed: str) -> tuple[str, str]:
    try:
        line = json.loads(printed.splitlines()[0])
        return str(line["grpc"]), str(line["control"])
    except (ValueError, KeyError, IndexError, TypeError):
        raise PartFailedError(
            f"the simulator printed {printed!r} instead of its addresses"
        ) from None


_SESSION_MS, _PATIENT_SESSION_MS = 3_000, 60_000


@dataclass(slots=True)
class LocalStack:
    """Broker, registry and simulator below `config.data_dir`; a context manager.

    `report` gets short lines about progress: what is being fetched, which part is ready.
    """

    config: LocalStackConfig
    report: Callable[[str], None] = lambda _line: None
    with_simulator: bool = True
    keeps_databases: bool = False
    """Whether the simulator's databases are kept for the next start on the same folder."""
    has_login: bool = False
    """Whether the broker has a second listener, with TLS and a login: `kafka.secure`."""
    is_patient: bool = False
    """Whether the broker must survive many seconds of a busy machine: no test kills it."""
    is_lasting: bool = False
    """Whether the broker runs for long, or under a high load: as `KafkaBroker.is_lasting`."""
    kafka: KafkaBroker = field(init=False)
    registry: SchemaRegistry = field(init=False)
    simulator: SpannerSimulator | None = field(init=False, default=None)
    _cancelled: threading.Event = field(init=False, default_factory=threading.Event)
    _started: bool = field(init=False, default=False)

    def __enter__(self) -> Self:
        """Start all parts; stop them again if one fails."""
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop all parts."""
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """Kafka's address."""
        return self.kafka.bootstrap_servers

    @property
    def registry_url(self) -> str:
        """The schema registry's address."""
        return self.registry.url

    @property
    def spanner_address(self) -> str:
        """The simulator's gRPC address, for `SPANNER_EMULATOR_HOST`; empty without a simulator."""
        return self.simulator.address if self.simulator else ""

    @property
    def control_address(self) -> str:
        """The simulator's control address; empty without a simulator."""
        return self.simulator.control_address if self.simulator else ""

    def start(self) -> None:
        """Start all parts in parallel; return when all are ready.

        Raises ConfigError (no Java, a port in use) before it starts anything, FetchError and
        PartFailedError after that.
        """
        config = self.config
        require_java_home()
        ports = choose_ports(
            {
                "kafka_port": config.kafka_port,
                "registry_port": config.registry_port,
                "spanner_port": config.spanner_port,
                "control_port": config.control_port,
                "controller_port": 0,
                "secure_port": 0,
            }
        )
        java = find_java()
        parts = fetch_jvm_parts(java, report=self.report)
        data_dir = config.data_dir.absolute()
        self.kafka = KafkaBroker(
            java=java,
            parts=parts,
            data_dir=data_dir / "kafka",
            port=ports["kafka_port"],
            controller_port=ports["controller_port"],
            cancelled=self._cancelled,
            secure=SecureListener(ports["secure_port"], data_dir / "secure")
            if self.has_login
            else None,
            session_ms=_PATIENT_SESSION_MS if self.is_patient else _SESSION_MS,
            is_lasting=self.is_lasting,
        )
        self.registry = SchemaRegistry(
            java=java,
            parts=parts,
            data_dir=data_dir / "registry",
            port=ports["registry_port"],
            cancelled=self._cancelled,
        )
        starts: dict[str, Callable[[], None]] = {
            "Kafka": self.kafka.start,
            "schema registry": self.registry.start,
        }
        if self.with_simulator:
            self.simulator = SpannerSimulator(
                data_dir=data_dir / "simulator",
                port=ports["spanner_port"],
                control_port=ports["control_port"],
                cancelled=self._cancelled,
                seed=config.seed,
                stream_partitions=config.stream_partitions,
                equal_timestamps=config.equal_timestamps,
                keeps_databases=self.keeps_databases,
            )
            starts["Spanner simulator"] = self.simulator.start
        self._started = True
        self._start_together(starts)

    def stop(self) -> None:
        """Stop all parts, the sources first.  Idempotent, and safe while `start` still runs."""
        self._cancelled.set()
        if not self._started:
            return
        parts = [part for part in (self.simulator, self.registry, self.kafka) if part is not None]
        with contextlib.ExitStack() as stops:
            for part in reversed(parts):
                stops.callback(part.stop)

    def _start_together(self, starts: dict[str, Callable[[], None]]) -> None:
        names = ", ".join(starts)
        self.report(f"starting {names}")
        with ThreadPoolExecutor(max_workers=len(starts), thread_name_prefix="start") as pool:
            running: dict[Future[None], str] = {
                pool.submit(start): name for name, start in starts.items()
            }
            for future, name in running.items():
                future.add_done_callback(partial(self._say_ready, name))
            try:
                done, _ = wait(running, return_when=FIRST_EXCEPTION)
            except BaseException:
                # Ctrl-C: leaving the pool waits for its threads, so end their waits first.
                self._cancelled.set()
                raise
            failures = [future.exception() for future in done if future.exception() is not None]
            if failures:
                self._cancelled.set()
        real = [failure for failure in failures if not isinstance(failure, Cancelled)]
        for failure in real or failures:
            if failure is not None:
                raise failure

    def _say_ready(self, name: str, future: Future[None]) -> None:
        if not future.cancelled() and future.exception() is None:
            self.report(f"{name} is ready")
