"""No test is in no lane: each is selected by a step, and each step runs in a lane."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.lanes import LANES, SIMULATOR, STEPS, Selection
from tests.spark.conftest import _HERE as HERE
from tests.spark.conftest import pytest_collection_modifyitems as in_order_of_start

REPOSITORY = Path(__file__).resolve().parents[2]

# A pytest run that prints path and markers of all tests that it finds, as JSON.
COLLECT = """
import json, sys
import pytest

class Printer:
    def pytest_collection_finish(self, session):
        found = {
            (str(item.path), tuple(sorted({mark.name for mark in item.iter_markers()})))
            for item in session.items
        }
        print("collected " + json.dumps(sorted(found)))

sys.exit(pytest.main(["--collect-only", "-q", "--no-header", "-p", "no:xdist"], [Printer()]))
"""


@pytest.fixture(scope="module")
def collected() -> list[tuple[str, frozenset[str]]]:
    """Path and markers of every test of Tidegate, each pair once."""
    done = subprocess.run(
        [sys.executable, "-c", COLLECT],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr
    (line,) = (one for one in done.stdout.splitlines() if one.startswith("collected "))
    return [
        (str(Path(path).relative_to(REPOSITORY)), frozenset(markers))
        for path, markers in json.loads(line.removeprefix("collected "))
    ]


def selects(step: Selection, path: str, markers: frozenset[str]) -> bool:
    """Whether the step runs a test, by the rules of pytest for paths and `-m`."""
    if not any(Path(path).is_relative_to(folder) for folder in step.paths):
        return False
    # An expression of names, `and`, `or` and `not` means the same in Python.
    known = defaultdict(bool, dict.fromkeys(markers, True))
    return not step.markers or bool(eval(step.markers, {}, known))


def test_every_test_is_selected_by_one_step_and_every_step_runs_in_a_lane(collected):
    assert len({path for path, _ in collected}) > 100
    found = {
        (path, markers): [
            name
            for name, step in STEPS.items()
            if isinstance(step, Selection) and selects(step, path, markers)
        ]
        for path, markers in collected
    }
    assert {test: steps for test, steps in found.items() if len(steps) != 1} == {}
    assert {name for steps in LANES.values() for name in steps} == STEPS.keys()
    paths = {path for step in STEPS.values() if isinstance(step, Selection) for path in step.paths}
    assert [path for path in paths if not (REPOSITORY / path).exists()] == []


def test_every_test_file_is_collected(collected):
    """A test file outside of pytest's folders, or one that it skips as a whole, would never run."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*test_*.py"],
        cwd=REPOSITORY, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    files = {
        name
        for name in listed
        if Path(name).name.startswith("test_") and (REPOSITORY / name).exists()
    }
    in_simulator = {name for name in files if name.startswith(f"{SIMULATOR}/tests/")}

    assert in_simulator
    assert files - in_simulator == {path for path, _ in collected}
    assert (STEPS["simulator"].paths, STEPS["simulator"].markers) == ((f"{SIMULATOR}/tests",), "")


def test_steps_of_spark_begin_with_the_file_that_takes_longest():
    """Begun last, one process would run it while the others have nothing left."""

    def item(name, number):
        return SimpleNamespace(path=HERE / "sinks" / name, name=number)

    names = ["test_a.py"] * 2 + ["test_any_schema_properties.py", *["test_b.py"] * 3, "test_c.py"]
    items = [item(name, number) for number, name in enumerate(names)]
    in_order_of_start(items)
    assert [one.name for one in items] == [2, 3, 4, 5, 0, 1, 6]
    others = [*items, SimpleNamespace(path=REPOSITORY / "tests/unit/test_x.py", name=7)]
    in_order_of_start(others)
    assert [one.name for one in others] == [2, 3, 4, 5, 0, 1, 6, 7]
    for step in ("slow spark", "deep spark"):
        command = STEPS[step].command([], Path("r.xml"))
        assert "--no-loadscope-reorder" in command
