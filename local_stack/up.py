"""`tidegate-local up`: a stack with a small bank, workers and consumer, until it is stopped.

Everything of one `up` lies in a folder of its own below the data folder: the simulator's databases
end with it, so its topics and tables mean nothing to the next one.  `latest.json` says where the
newest output is.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tidegate.local_stack.bank import ACCOUNTS, STREAM, Bank
from tidegate.local_stack.bank_database import DatabaseName, create_bank_database, open_accounts
from tidegate.local_stack.pipeline import Pipeline
from tidegate.local_stack.programs import Programs
from tidegate.local_stack.stack import LocalStack
from tidegate.schemas.errors import ConfigError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from pathlib import Path

    from tidegate.local_stack.config import LocalStackConfig
    from tidegate.local_stack.view import RunView

__all__ = ["LATEST", "Sample", "keep_up", "latest_output", "sample_snippet"]

LATEST = "latest.json"
PREFIX = "bank"
_WORKERS = 2
_ACCOUNTS = 10
_CHECK_EVERY_S = 0.5
_ARRIVAL_DEADLINE_S = 300.0


@dataclass(frozen=True, slots=True)
class Sample:
    """Where everything of a running `up` is."""

    bootstrap_servers: str
    registry_url: str
    spanner_address: str
    control_address: str
    database: DatabaseName
    output: Path

    def environment(self) -> dict[str, str]:
        """Return the variables that point other programs at it."""
        return {
            "TIDEGATE_KAFKA": self.bootstrap_servers,
            "TIDEGATE_REGISTRY": self.registry_url,
            "SPANNER_EMULATOR_HOST": self.spanner_address,
            "TIDEGATE_SIMULATOR_CONTROL": self.control_address,
        }

    def lines(self) -> list[str]:
        """Return what is printed once everything works."""
        names = self.database
        return [
            *(f"export {name}={value}" for name, value in self.environment().items()),
            "",
            f"# project {names.project}, instance {names.instance}, database {names.database}",
            f"# change stream {STREAM}",
            f"# topics {PREFIX}.accounts, {PREFIX}.ledger, {PREFIX}-progress",
            f"# output {self.output}",
            "",
            "# In another terminal: write one row, and see it arrive.",
            *sample_snippet(names, output=self.output),
        ]


def sample_snippet(database: DatabaseName, *, output: Path) -> list[str]:
    """Return shell lines that write one row with the official client and wait for it in Delta."""
    return [
        f"export SPANNER_EMULATOR_HOST={database.address} SPANNER_DISABLE_BUILTIN_METRICS=true",
        f"{sys.executable} - <<'END'",
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
        f"{sys.executable} -m tidegate.local_stack show {ACCOUNTS} --output {output} \\",
        "    --key my-account",
    ]


def latest_output(data_dir: Path) -> Path:
    """Return the output folder of the newest `up`; raises ConfigError if there is none."""
    try:
        content = json.loads((data_dir / LATEST).read_text())
    except OSError as error:
        message = f"{data_dir} holds no output"
        hint = "Start `tidegate-local up` with the same --data-dir, or name an --output"
        raise ConfigError(message, hint=hint) from error
    return data_dir / str(content["output"])


def keep_up(
    config: LocalStackConfig,
    *,
    view: RunView,
    show: Callable[[str], None],
    stopping: threading.Event,
    keep: bool,
) -> None:
    """Run until `stopping` is set or a KeyboardInterrupt comes; then stop everything in order.

    Raises PartFailedError when a program ends by itself.  Unless `keep`, the run's folder is
    removed.
    """
    data_dir = config.data_dir.absolute()
    folder = data_dir / f"up-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    with ExitStack() as cleanup:
        if not keep:
            cleanup.callback(_remove, data_dir, folder)
        own = config.model_copy(update={"data_dir": folder})
        view.stage("starting Kafka, schema registry and the Spanner simulator")
        stack = cleanup.enter_context(LocalStack(own, report=view.detail))
        name = DatabaseName(address=stack.spanner_address)
        pipeline = Pipeline(
            Programs(
                folder=folder,
                bootstrap_servers=stack.bootstrap_servers,
                registry_url=stack.registry_url,
                spanner_address=stack.spanner_address,
                database=name,
                stream=STREAM,
                prefix=PREFIX,
                log_level="info",
            )
        )
        cleanup.callback(pipeline.stop)
        view.stage("creating a small bank, starting workers and consumer")
        database = create_bank_database(name)
        start = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        opened_us = open_accounts(database, Bank(accounts=_ACCOUNTS, seed=config.seed))
        pipeline.start_workers(_WORKERS, start=start)
        pipeline.start_consumer()
        view.stage("waiting for the first rows to arrive in Delta")
        pipeline.wait_released(opened_us, deadline_s=_ARRIVAL_DEADLINE_S)
        output = pipeline.programs.output
        (data_dir / LATEST).write_text(json.dumps({"output": str(output.relative_to(data_dir))}))
        sample = Sample(
            bootstrap_servers=stack.bootstrap_servers,
            registry_url=stack.registry_url,
            spanner_address=stack.spanner_address,
            control_address=stack.control_address,
            database=name,
            output=output,
        )
        for line in sample.lines():
            show(line)
        view.stage("up; Ctrl-C stops it")
        while not stopping.is_set():
            pipeline.check()
            time.sleep(_CHECK_EVERY_S)


def _remove(data_dir: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    (data_dir / LATEST).unlink(missing_ok=True)
