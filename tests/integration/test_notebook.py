"""The notebook of docs/notebooks/ is executed: its figures are those that were put in."""

from __future__ import annotations

import base64
import json
import os
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from traitlets.config import Config

from tests.integration.shared_stack import SharedStack, now, running
from tidegate.local_stack.commands.up import PREFIX, Sample
from tidegate.local_stack.demo.bank import STREAM, Bank
from tidegate.local_stack.demo.bank_database import create_bank_database, open_accounts
from tidegate.local_stack.parts.installed_java import find_java
from tidegate.local_stack.parts.jvm_parts import fetched_jvm_parts
from tidegate.local_stack.parts.programs import quick_start

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.deep]

ACCOUNTS = 10
"""As many as `tidegate-local up` opens in the sample bank."""

_NOTEBOOK = Path(__file__).resolve().parents[2] / "docs" / "notebooks" / "spanner_to_delta.ipynb"
_CELL_S = 600
_SESSION = "tg.session()"


def execute(stack: SharedStack, *, last: str) -> Any:
    """Return the notebook with its outputs, and with a last cell of the caller's.

    The stack is that of `tidegate-local up` without its consumer.
    """
    folder, name = stack.folder, stack.database_name
    sample = Sample(
        bootstrap_servers=stack.bootstrap_servers,
        registry_url=stack.registry_url,
        spanner_address=stack.spanner_address,
        control_address=stack.control_address,
        database=name,
        output=folder,
        producer_file=folder / "producer.toml",
        consumer_file=folder / "consumer.toml",
        audit_file=Path("audit.json"),
    )
    programs = replace(stack.programs(STREAM), prefix=PREFIX)
    database = create_bank_database(name)
    # The stream keeps nothing from before it was created.
    start = now()
    open_accounts(database, Bank(accounts=ACCOUNTS, seed=7))
    notebook = nbformat.read(_NOTEBOOK, as_version=4)
    first = next(cell for cell in notebook.cells if _SESSION in cell.source)
    first.source = first.source.replace(_SESSION, _session_here(folder))
    notebook.cells.append(nbformat.v4.new_code_cell(last))
    inherited = {key: one for key, one in os.environ.items() if not key.startswith("TIDEGATE_")}
    java = {"JAVA_HOME": str(find_java().home), "SPARK_LOCAL_IP": "127.0.0.1"}
    # No port of this machine; and a name of a socket may not be long.
    with running(programs, start=start), TemporaryDirectory(prefix="tidegate-") as sockets:
        client = NotebookClient(
            notebook,
            timeout=_CELL_S,
            startup_timeout=_CELL_S,
            kernel_name="python3",
            config=Config({"ConnectionFileMixin": {"transport": "ipc", "ip": f"{sockets}/kernel"}}),
            record_timing=False,
            resources={"metadata": {"path": str(folder)}},
        )
        client.execute(env={**inherited, **sample.environment(), **java})
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


TRANSACTIONS = 40
"""That the notebook makes, with a change of each table."""

LAST = """
import json
frame = releases.filter(like="rows.")
print(json.dumps({
    "accounts": [row.asDict() for row in spark.table("bank.accounts").collect()],
    "ledger": [row.asDict(recursive=True)["Amount"] for row in tables.table("ledger").collect()],
    "by_schema": tg.as_of(spark, "bank", datetime.now(UTC)).table("ledger").count(),
    "is_proved": report.is_proved,
    "changes": report.changes,
    "rows": int(releases["rows"].sum()),
    "by_table": {name: int(frame[name].sum()) for name in frame},
    "releases": releases["release"].tolist(),
    "lags": releases["lag_s"].tolist(),
    "status": [figures["releases"] for figures in (tg.status(lake / "_checkpoint"),)],
    "is_active": query.isActive,
}))
"""


@pytest.mark.timeout(900)
def test_the_notebook_shows_what_was_put_in(shared_stack):
    notebook = execute(shared_stack, last=LAST)

    *cells, last = [cell for cell in notebook.cells if cell.cell_type == "code"]
    found = json.loads(last.outputs[0].text)
    balances = {row["AccountId"]: row["Balance"] for row in found["accounts"]}
    assert len(balances) == ACCOUNTS + 1
    assert balances["notebook"] == sum(found["ledger"]) == TRANSACTIONS
    assert found["by_schema"] == len(found["ledger"]) == TRANSACTIONS
    changes = ACCOUNTS + 2 * TRANSACTIONS
    assert found["is_proved"]
    assert found["changes"] == found["rows"] == changes
    assert found["by_table"] == {
        "rows.accounts": ACCOUNTS + TRANSACTIONS,
        "rows.ledger": TRANSACTIONS,
    }
    assert found["releases"] == list(range(len(found["releases"])))
    assert found["status"][0] >= len(found["releases"]) >= 2
    assert all(lag > 0 for lag in found["lags"])
    assert not found["is_active"]

    # Lines of Spark's start go to standard error.
    outputs = [
        output for cell in cells for output in cell.outputs if output.output_type != "stream"
    ]
    assert {output.output_type for output in outputs} == {"execute_result"}
    forms = [output.data for output in outputs]
    (picture,) = [data["image/png"] for data in forms if "image/png" in data]
    assert base64.b64decode(picture).startswith(b"\x89PNG")
    # The tables, the names, the changes, status, audit and the releases.
    assert sum("<table" in data.get("text/html", "") for data in forms) == 6
