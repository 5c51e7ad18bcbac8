"""Official clients against the simulator: Python's always, Node's where its packages can be had.

Node's program is fetched fastest and needs no compiler; `python -m conformance` runs those of Go
and Java as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.programs import PROGRAMS, FetchFailedError, prepare
from conformance.report import run_program
from spanner_simulator import Simulator

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with Simulator(seed=5) as running:
        yield running


@pytest.mark.parametrize("name", ["python", "node"])
def test_a_client_passes_every_check(
    name: str, simulator: Simulator, project: Path, tmp_path: Path
) -> None:
    program = next(one for one in PROGRAMS if one.name == name)
    if missing := program.missing():
        pytest.skip(missing)
    try:
        command = prepare(program, project / ".conformance")
    except FetchFailedError as failure:
        pytest.skip(str(failure))
    assert run_program(program, command, simulator, tmp_path / "stderr").failures == []
