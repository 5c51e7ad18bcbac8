"""Executes the notebook of docs/notebooks/ on a real stack."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

from tidegate.local_stack.config import load_config
from tidegate.local_stack.demo.bank import STREAM, Bank
from tidegate.local_stack.demo.bank_database import create_bank_database, open_accounts
from tidegate.local_stack.demo.pipeline import Pipeline
from tidegate.local_stack.parts.database_name import DatabaseName
from tidegate.local_stack.parts.java import find_java
from tidegate.local_stack.parts.jvm_parts import fetched_jvm_parts
from tidegate.local_stack.parts.programs import Programs, quick_start
from tidegate.local_stack.parts.stack import LocalStack
from tidegate.local_stack.up import PREFIX, Sample

__all__ = ["ACCOUNTS", "execute"]

ACCOUNTS = 10
"""Of the sample bank, as many as `tidegate-local up` opens."""

_NOTEBOOK = Path(__file__).resolve().parents[2] / "docs" / "notebooks" / "spanner_to_delta.ipynb"
_CELL_S = 600
_SESSION = "tg.session()"


def execute(folder: Path, *, last: str = "") -> tuple[Any, list[str]]:
    """Execute the notebook in a folder, with a last cell of the caller's.

    The stack is that of `tidegate-local up` without its consumer.  Returns the notebook with its
    outputs, and what was wrong with the end of the stack's worker.
    """
    with LocalStack(load_config(data_dir=folder / "stack", seed=7)) as stack:
        name = DatabaseName(address=stack.spanner_address)
        sample = Sample(
            bootstrap_servers=stack.bootstrap_servers,
            registry_url=stack.registry_url,
            spanner_address=stack.spanner_address,
            control_address=stack.control_address,
            database=name,
            output=folder,
            producer_file=folder / "producer.toml",
            consumer_file=folder / "consumer.toml",
        )
        programs = Programs(
            folder=folder,
            bootstrap_servers=stack.bootstrap_servers,
            registry_url=stack.registry_url,
            spanner_address=stack.spanner_address,
            database=name,
            stream=STREAM,
            prefix=PREFIX,
        )
        pipeline = Pipeline(programs)
        database = create_bank_database(name)
        # The stream keeps nothing from before it was created.
        start = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        open_accounts(database, Bank(accounts=ACCOUNTS, seed=7))
        try:
            pipeline.start_workers(1, start=start)
            found = _executed(folder, sample.environment(), last=last)
        finally:
            faults = pipeline.stop()
    return found, faults


def _executed(folder: Path, environment: dict[str, str], *, last: str) -> Any:
    notebook = nbformat.read(_NOTEBOOK, as_version=4)
    first = next(cell for cell in notebook.cells if _SESSION in cell.source)
    source = first.source
    first.source = source.replace(_SESSION, _session_here(folder))
    if last:
        notebook.cells.append(nbformat.v4.new_code_cell(last))
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("TIDEGATE_")
    }
    # No port of this machine; and a name of a socket may not be long.
    with TemporaryDirectory(prefix="tidegate-") as sockets:
        client = NotebookClient(
            notebook,
            timeout=_CELL_S,
            startup_timeout=_CELL_S,
            kernel_name="python3",
            config=Config({"ConnectionFileMixin": {"transport": "ipc", "ip": f"{sockets}/kernel"}}),
            record_timing=False,
            resources={"metadata": {"path": str(folder)}},
        )
        client.execute(
            env={
                **inherited,
                **environment,
                "JAVA_HOME": str(find_java().home),
                "SPARK_LOCAL_IP": "127.0.0.1",
            }
        )
    first.source = source
    return notebook


def _session_here(folder: Path) -> str:
    """Return the call that starts a session with the jars that are on this machine already."""
    parts = fetched_jvm_parts()
    assert parts is not None
    jars = ",".join(str(jar) for jar in parts.spark_jars)
    settings = {
        "spark.driver.extraJavaOptions": quick_start(),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    return f"tg.session(jars={jars!r}, master='local[2]', **{settings!r})"
