"""`tidegate-local up`: a stack with a small bank, workers and consumer, until it is stopped.

Everything is kept in the folder `up` of the data folder, and the next `up` continues with it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.local_stack.config import LocalStackConfig
from tidegate.local_stack.demo.bank import ACCOUNTS, STREAM, Bank
from tidegate.local_stack.demo.bank_database import (
    create_bank_database,
    open_accounts,
)
from tidegate.local_stack.demo.pipeline import Pipeline
from tidegate.local_stack.errors import PartFailedError, PortTakenError
from tidegate.local_stack.parts.installed_java import find_java
from tidegate.local_stack.parts.process import HOST, choose_ports
from tidegate.local_stack.parts.programs import CONSUMER_NAME, DatabaseName, Programs
from tidegate.local_stack.parts.stack import LocalStack
from tidegate.schemas.errors import ConfigError

if TYPE_CHECKING:
    from tidegate.local_stack.demo.view import RunView


PREFIX = "bank"
_WORKERS = 2
_CONSOLE = "console_port"
_PORTS = ("kafka_port", "registry_port", "spanner_port", "control_port", _CONSOLE)
"""The ports that are printed: the next start takes them again."""
_METRICS = (*(f"w{number}" for number in range(1, _WORKERS + 1)), CONSUMER_NAME)
"""The programs whose metrics the console reads."""
_ACCOUNTS = 10
_MIRROR_MS = 2_000
_CHECK_EVERY_S = 0.5
_ARRIVAL_DEADLINE_S = 300.0


@dataclass(frozen=True, slots=True)
class Sample:
    """The addresses and folders of a running `up`."""

    bootstrap_servers: str
    registry_url: str
    spanner_address: str
    control_address: str
    database: DatabaseName
    output: Path
    producer_file: Path
    consumer_file: Path
    """Settings files of the two programs."""
    audit_file: Path
    """Where the console looks for an audit's result."""
    java_home: Path

    def environment(self) -> dict[str, str]:
        """Return the variables that point Spanner's clients and other programs at it."""
        return {
            "TIDEGATE_KAFKA": self.bootstrap_servers,
            "TIDEGATE_REGISTRY": self.registry_url,
            "SPANNER_EMULATOR_HOST": self.spanner_address,
            "TIDEGATE_SIMULATOR_CONTROL": self.control_address,
        }

    def lines(self) -> list[str]:
        """Return the lines to print when all programs run; a shell can execute them."""
        names = self.database
        return [
            *(f"export {name}={value}" for name, value in self.environment().items()),
            "",
            f"# project {names.project}, instance {names.instance}, database {names.database}",
            f"# change stream {STREAM}",
            f"# topics {PREFIX}.accounts, {PREFIX}.ledger, {PREFIX}-progress",
            f"# output {self.output}",
            f"# mirrors get new releases every {_MIRROR_MS // 1_000} s (mirror_interval_ms)",
            "",
            "# In another terminal: write one row, and see it arrive.",
            *sample_snippet(names, output=self.output),
            "",
            "# Look at the running programs; the settings are in the files.",
            *self.commands(),
        ]

    def commands(self) -> list[str]:
        """Return commands that look at the running programs, with all that they need."""
        producer, consumer = (
            f"{shlex.quote(sys.executable)} -m tidegate.{program}"
            for program in ("producer", "spark_consumer")
        )
        consumer = f"JAVA_HOME={shlex.quote(str(self.java_home))} SPARK_LOCAL_IP={HOST} {consumer}"
        files = [shlex.quote(str(file)) for file in (self.producer_file, self.consumer_file)]
        return [
            f"{producer} status --config {files[0]}",
            f"{producer} lineage --config {files[0]}",
            f"{producer} dead-letters --config {files[0]}",
            f"{consumer} audit --config {files[1]}",
            f"{consumer} audit --json --config {files[1]} > {shlex.quote(str(self.audit_file))}",
        ]


def sample_snippet(database: DatabaseName, *, output: Path) -> list[str]:
    """Return shell lines that write one row with the official client and wait for it in Delta."""
    python = shlex.quote(sys.executable)
    return [
        f"export SPANNER_EMULATOR_HOST={database.address} SPANNER_DISABLE_BUILTIN_METRICS=true",
        f"{python} - <<'END'",
        "from google.cloud import spanner",
        f'client = spanner.Client(project="{database.project}")',
        f'database = client.instance("{database.instance}").database("{database.database}")',
        "with database.batch() as batch:",
        "    batch.insert_or_update(",
        f'        "{ACCOUNTS}",',
        '        columns=["AccountId", "Owner", "Balance", "Transfers"],',
        '        values=[["my-account", "Me", 42, 0]],',
        "    )",
        "END",
        (
            f"{python} -m tidegate.local_stack show {ACCOUNTS} "
            f"--output {shlex.quote(str(output))} \\"
        ),
        "    --key my-account",
    ]


class UpFolder:
    """The folder `up` below a data folder: databases, topics, schemas, output and logs.

    It counts as created when its first start has come to the end.  Before that it holds nothing
    that a user wrote, so the next start removes it.
    """

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir.absolute()
        self.path = self._data_dir / "up"
        self._marker = self.path / "created"
        self._ports = self.path / "ports.json"

    @property
    def is_created(self) -> bool:
        """Whether a first start has come to its end here."""
        return self._marker.exists()

    @property
    def output(self) -> Path:
        """The consumer's output folder; raises ConfigError if nothing was created here."""
        if not self.is_created:
            raise ConfigError(
                f"{self._data_dir} has no output of `tidegate-local up`",
                hint="Start `tidegate-local up` with the same --data-dir, or set --output",
            )
        return self.path / "output"

    @contextlib.contextmanager
    def owned(self, *, fresh: bool) -> Iterator[None]:
        """Hold the folder for this process; remove its content first if it must not be continued.

        Raises ConfigError if another process holds it.
        """
        self._data_dir.mkdir(parents=True, exist_ok=True)
        held = os.open(self._data_dir, os.O_RDONLY)
        try:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ConfigError(
                    f"{self._data_dir} is in use by another `tidegate-local up`",
                    hint="Stop it, or choose another --data-dir",
                ) from error
            if fresh or not self.is_created:
                shutil.rmtree(self.path, ignore_errors=True)
            yield
        finally:
            os.close(held)

    def mark_created(self) -> None:
        """Let the next start continue here."""
        self._marker.touch()

    def kept_ports(self) -> dict[str, int]:
        """Return the ports of the last start by their settings; none if they are not known."""
        try:
            kept = json.loads(self._ports.read_text())
            return {name: int(kept[name]) for name in _PORTS}
        except (OSError, ValueError, KeyError, TypeError):
            return {}

    def keep_ports(self, ports: Mapping[str, int]) -> None:
        """Keep ports for the next start."""
        self._ports.write_text(json.dumps({name: ports[name] for name in _PORTS}))


def up_command(data_dir: Path, *flags: str) -> str:
    """Return the command that starts on a data folder, to be typed in the same folder."""
    words = [sys.executable, "-m", "tidegate.local_stack", "up"]
    if data_dir.absolute() != LocalStackConfig.model_fields["data_dir"].default.absolute():
        words += ["--data-dir", str(data_dir.absolute())]
    return shlex.join([*words, *flags])


def _ports_of(
    config: LocalStackConfig, kept: Mapping[str, int], *, say: Callable[[str], None]
) -> dict[str, int]:
    """Return the ports of a start: those that are asked for, else the kept ones, else free ones.

    Raises PortTakenError if one that is asked for is taken.
    """
    asked = {name: int(getattr(config, name)) for name in _PORTS}
    chosen = dict(asked)
    for name, port in kept.items():
        if asked[name] or port in asked.values():
            continue
        try:
            chosen |= choose_ports({name: port})
        except PortTakenError:
            say(f"port {port} of the last start is taken: {name} is another one")
    return choose_ports({**chosen, **dict.fromkeys(_METRICS, 0)})


def keep_up(
    config: LocalStackConfig,
    *,
    view: RunView,
    show: Callable[[str], None],
    stopping: threading.Event,
    fresh: bool,
) -> None:
    """Run until `stopping` is set or a KeyboardInterrupt comes; then stop everything in order.

    Continues with the databases, topics and tables of the last run in the same data folder; `fresh`
    removes them first.  Raises PartFailedError when a program ends by itself.
    """
    folder = UpFolder(config.data_dir)
    with ExitStack() as cleanup:
        cleanup.enter_context(folder.owned(fresh=fresh))
        continues = folder.is_created
        ports = _ports_of(config, folder.kept_ports(), say=view.event)
        own_config = config.model_copy(update={**ports, "data_dir": folder.path})
        view.stage("starting Kafka, schema registry and the Spanner simulator")
        stack = cleanup.enter_context(
            LocalStack(own_config, report=view.detail, keeps_databases=True, is_lasting=True)
        )
        folder.keep_ports(ports)
        # Of programs that were killed.
        shutil.rmtree(folder.path / "programs", ignore_errors=True)
        metrics_ports = {name: ports[name] for name in _METRICS}
        programs = _programs(stack, folder.path, metrics_ports)
        programs.write_settings_files()
        sample = Sample(
            bootstrap_servers=stack.bootstrap_servers,
            registry_url=stack.registry_url,
            spanner_address=stack.spanner_address,
            control_address=stack.control_address,
            database=programs.database,
            output=programs.output,
            producer_file=programs.producer_file,
            consumer_file=programs.consumer_file,
            audit_file=programs.audit_file,
            java_home=find_java().home,
        )
        pipeline = Pipeline(programs)
        cleanup.callback(pipeline.stop)
        pipeline.start_console(port=ports[_CONSOLE])
        with view.hidden():
            show(f"# console http://{HOST}:{ports[_CONSOLE]}/")
        if continues:
            kept = f"{pipeline.released().releases} releases, the databases and the topics"
            view.stage(f"continuing with {kept} in {folder.path}: starting workers and consumer")
            _continue(pipeline, fresh=up_command(config.data_dir, "--fresh"))
        else:
            view.stage("creating a small bank, starting workers and consumer")
            _create(pipeline, sample.database, seed=config.seed, view=view)
            folder.mark_created()
        with view.hidden():
            for line in sample.lines():
                show(line)
        view.stage(f"up; Ctrl-C stops it and keeps the data in {folder.path}")
        while not stopping.is_set():
            pipeline.check()
            time.sleep(_CHECK_EVERY_S)


def _programs(stack: LocalStack, folder: Path, metrics_ports: Mapping[str, int]) -> Programs:
    return Programs(
        folder=folder,
        bootstrap_servers=stack.bootstrap_servers,
        registry_url=stack.registry_url,
        spanner_address=stack.spanner_address,
        database=DatabaseName(address=stack.spanner_address),
        stream=STREAM,
        prefix=PREFIX,
        log_level="info",
        metrics_ports=metrics_ports,
        more={
            "TIDEGATE_CONSUMER_MIRROR_INTERVAL_MS": str(_MIRROR_MS),
        },
    )


def _create(pipeline: Pipeline, name: DatabaseName, *, seed: int, view: RunView) -> None:
    """Create the bank, start all programs, return when its accounts are in Delta."""
    database = create_bank_database(name)
    start = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    opened_us = open_accounts(database, Bank(accounts=_ACCOUNTS, seed=seed))
    pipeline.start_workers(_WORKERS, start=start)
    pipeline.start_consumer()
    view.stage("waiting for the first rows to arrive in Delta")
    pipeline.wait_released(opened_us, deadline_s=_ARRIVAL_DEADLINE_S)


def _continue(pipeline: Pipeline, *, fresh: str) -> None:
    """Start all programs again, return when the consumer has finished a batch.

    `fresh` is the command that removes the data, for the hint of an error.
    """
    before = pipeline.batches()
    try:
        # The stream exists, so its workers ignore this setting.
        pipeline.start_workers(_WORKERS, start="now")
        pipeline.start_consumer()
        pipeline.wait(
            lambda: pipeline.batches() > before,
            what="the consumer to finish a batch",
            deadline_s=_ARRIVAL_DEADLINE_S,
        )
    except PartFailedError as error:
        raise PartFailedError(
            error.message,
            hint=f"`{fresh}` removes the kept data and starts from nothing",
        ) from error
