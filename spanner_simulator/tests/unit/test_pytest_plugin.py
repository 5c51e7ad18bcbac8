"""The plugin in a pytest of its own, as somebody else's project would have it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CONFTEST = """
import pytest
from spanner_simulator import SimulatorConfig

@pytest.fixture(scope="session")
def spanner_simulator_config():
    return SimulatorConfig(stream_partitions=3)
"""

MARKED = """
import os
import pytest

DDL = "CREATE TABLE A (K INT64) PRIMARY KEY (K)"
STREAM = "CREATE CHANGE STREAM S FOR A"


@pytest.mark.spanner_ddl(DDL, STREAM)
@pytest.mark.parametrize("turn", [1, 2])
def test_each_has_a_database_of_its_own(turn, spanner_database):
    from google.cloud import spanner

    assert os.environ["SPANNER_EMULATOR_HOST"] == spanner_database.simulator.grpc_address
    with spanner_database.connect().batch() as batch:
        batch.insert("A", ["K"], [[1]])
    assert len(spanner_database.simulator.commit_log(spanner_database.name, "S")) == 1
    partitions = spanner_database.simulator.stream_partitions(spanner_database.name, "S")
    assert len(partitions) == 3
    spanner_database.simulator.add_fault()
    spanner_database.simulator.freeze()
    spanner_database.simulator.hold(spanner_database.name, "S")


@pytest.mark.spanner_ddl(dialect="POSTGRESQL")
def test_a_database_may_be_gone_at_the_end(spanner_database):
    spanner_database.simulator.drop_database(spanner_database.name)


@pytest.mark.xfail(raises=pytest.UsageError, strict=True)
@pytest.mark.spanner_ddl(dialct="POSTGRESQL")
def test_a_marker_with_an_unknown_argument(spanner_database):
    pass


def test_nothing_is_left_of_others(spanner_simulator):
    assert spanner_simulator.health()["databases"] == []
    assert spanner_simulator.faults() == []
    assert not spanner_simulator.clock()["is_frozen"]
    assert spanner_simulator.release_all() == {"released": 0}
    assert "SPANNER_EMULATOR_HOST" not in os.environ
"""

OVERRIDDEN = """
import pytest


@pytest.fixture
def spanner_ddl():
    return ["CREATE TABLE B (K INT64) PRIMARY KEY (K)"]


def test_the_schema_of_a_module(spanner_database):
    database = spanner_database.connect()
    assert [table.table_id for table in database.list_tables()] == ["B"]
"""


def test_a_project_that_uses_it(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_marked.py").write_text(MARKED)
    (tmp_path / "test_overridden.py").write_text(OVERRIDDEN)
    environment = {
        name: value for name, value in os.environ.items() if name != "SPANNER_EMULATOR_HOST"
    }
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider",
            "--strict-markers", "test_marked.py", "test_overridden.py",
        ],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )  # fmt: skip
    assert "5 passed, 1 xfailed" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0
