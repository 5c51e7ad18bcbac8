"""A few seeds of the differential suite; `python -m differential --seeds 50` runs more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from differential.emulator import ABSENT, Emulator, find_emulator
from differential.seeds import run_seed

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    program = find_emulator()
    if program is None:
        pytest.skip(ABSENT)
    with Emulator(program, tmp_path_factory.mktemp("emulator") / "emulator.log") as running:
        yield running


@pytest.mark.parametrize("seed", [1, 3, 4, 6])
def test_no_difference_is_unexplained(emulator: Emulator, seed: int):
    result = run_seed(seed, emulator)
    told = "\n".join(line for one in result.unexplained for line in one.lines())
    assert result.unexplained == [], told
    assert result.crash or result.transactions > 0
