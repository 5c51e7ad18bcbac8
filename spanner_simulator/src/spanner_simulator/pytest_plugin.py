"""Fixtures for tests that need a Spanner; pytest loads this module by its entry point.

One simulator serves the whole run, each test has a database of its own. The simulator itself is
imported when a test first asks for it.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spanner_simulator.core.values import Dialect
    from spanner_simulator.simulator import Simulator, SimulatorConfig


_PROJECT = "test-project"
_INSTANCE = "test-instance"
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class SpannerDatabase:
    """The database of one test, and its address."""

    simulator: Simulator
    project: str
    instance: str
    database: str

    @property
    def name(self) -> str:
        """The full resource name."""
        return f"projects/{self.project}/instances/{self.instance}/databases/{self.database}"

    def connect(self) -> Any:
        """The database as an object of Google's Python client."""
        return self.simulator.client(self.project).instance(self.instance).database(self.database)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        "spanner_ddl(*statements, dialect='GOOGLE_STANDARD_SQL'): the schema of spanner_database",
    )


@pytest.fixture(scope="session")
def spanner_simulator_config() -> SimulatorConfig:
    """Settings of the simulator; override it to have others."""
    from spanner_simulator.simulator import SimulatorConfig  # noqa: PLC0415  # see the module

    return SimulatorConfig()


@pytest.fixture(scope="session")
def spanner_simulator(spanner_simulator_config: SimulatorConfig) -> Iterator[Simulator]:
    """A simulator for the whole run."""
    from spanner_simulator.simulator import Simulator  # noqa: PLC0415  # see the module

    with Simulator(spanner_simulator_config) as simulator:
        yield simulator


@pytest.fixture
def spanner_ddl(request: pytest.FixtureRequest) -> list[str]:
    """The schema of `spanner_database`: the marker's statements; override it for a whole module."""
    marker = request.node.get_closest_marker("spanner_ddl")
    return [] if marker is None else list(marker.args)


@pytest.fixture
def spanner_dialect(request: pytest.FixtureRequest) -> Dialect:
    """The dialect of `spanner_database`: the marker's; override it for a whole module."""
    marker = request.node.get_closest_marker("spanner_ddl")
    arguments: dict[str, Dialect] = {} if marker is None else marker.kwargs
    if unknown := ", ".join(sorted(set(arguments) - {"dialect"})):
        raise pytest.UsageError(f"the marker spanner_ddl has no argument {unknown}")
    return arguments.get("dialect", "GOOGLE_STANDARD_SQL")


@pytest.fixture
def spanner_database(
    spanner_simulator: Simulator,
    spanner_ddl: list[str],
    spanner_dialect: Dialect,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[SpannerDatabase]:
    """A new database with its schema; the environment leads every official client to it.

    Afterwards it is dropped, faults and holds are cleared, and a frozen clock runs on.
    """
    for name, value in spanner_simulator.environment().items():
        monkeypatch.setenv(name, value)
    database = f"test-{next(_numbers)}"
    spanner_simulator.create_database(
        database, ddl=spanner_ddl, dialect=spanner_dialect, instance=_INSTANCE, project=_PROJECT
    )
    made = SpannerDatabase(spanner_simulator, _PROJECT, _INSTANCE, database)
    yield made
    spanner_simulator.clear_faults()
    spanner_simulator.release_all()
    spanner_simulator.thaw()
    # A test may have dropped it, or reset the simulator.
    if made.name in spanner_simulator.health()["databases"]:
        spanner_simulator.drop_database(made.name)
