"""What works without the extra `[sql]`, and what the rest answers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from google.api_core.exceptions import MethodNotImplemented
from google.cloud.spanner_v1.keyset import KeySet

from spanner_simulator import Simulator
from spanner_simulator.server import sql_support

DDL = ("CREATE TABLE A (K INT64, V STRING(MAX)) PRIMARY KEY (K)", "CREATE CHANGE STREAM S FOR A")

# Imports every module that has to work without the extra, in a Python that does not have it.
IMPORTS = """
import importlib, pkgutil, sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Hidden())
import spanner_simulator

for module in pkgutil.walk_packages(spanner_simulator.__path__, "spanner_simulator."):
    if not module.name.startswith("spanner_simulator.sql") and "__main__" not in module.name:
        importlib.import_module(module.name)
"""


@pytest.fixture
def simulator(monkeypatch: pytest.MonkeyPatch) -> Iterator[Simulator]:
    monkeypatch.setattr(sql_support, "find_spec", lambda _: None)
    with Simulator(seed=7) as running:
        running.create_database("shop", ddl=list(DDL))
        yield running


@pytest.fixture
def database(simulator: Simulator) -> Any:
    return simulator.client().instance("test-instance").database("shop")


def test_mutations_reads_and_change_streams_work(simulator: Simulator, database: Any) -> None:
    with database.batch() as batch:
        batch.insert("A", ["K", "V"], [[1, "one"]])
    with database.snapshot() as snapshot:
        rows = list(snapshot.read("A", ["K", "V"], KeySet(all_=True)))
    time = simulator.commit_log("shop", "S")[0]["commit_timestamp"]
    with database.snapshot() as snapshot:
        query = f"SELECT ChangeRecord FROM READ_S('{time}', '{time}', NULL, 1000)"
        records = list(snapshot.execute_sql(query))
    assert rows == [[1, "one"]]
    assert records


def select(database: Any) -> None:
    with database.snapshot() as snapshot:
        list(snapshot.execute_sql("SELECT 1"))


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (select, "queries and DML"),
        (
            lambda database: database.update_ddl(
                ["ALTER TABLE A ADD COLUMN D INT64 DEFAULT (7)"]
            ).result(),
            "the expression 7",
        ),
    ],
)
def test_sql_is_refused_with_the_command_that_installs_it(
    database: Any, call: Callable[[Any], None], what: str
) -> None:
    with pytest.raises(MethodNotImplemented) as refused:
        call(database)
    assert refused.value.message.startswith(
        f"The simulator needs its SQL engine for {what}. Install it with: "
        'pip install "spanner-simulator[sql]"'
    )


def test_nothing_outside_the_engine_imports_its_libraries() -> None:
    code = IMPORTS.format(hidden=sql_support.LIBRARIES)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
