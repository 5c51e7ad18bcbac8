"""How `./dev` runs a lane: which pytest runs, what counts as passed, and what is printed last."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import lanes
from tests.another_spark import in_turn
from tests.stamps import Stamps

FAILED = """<testcase classname="tests.unit.test_a" name="test_two" time="0.5">
      <failure message="no">def test_two():\n&gt; assert 1 == 2\nE  assert 1 == 2</failure>
    </testcase>"""
PASSED = '<testcase classname="tests.unit.test_a" name="test_two" time="0.5" />'
RESULTS = """<?xml version="1.0"?>
<testsuites>
  <testsuite name="pytest" tests="4" failures="{failures}" errors="0" skipped="1" time="9.0">
    <testcase classname="tests.unit.test_a" name="test_one" time="7.25" />
    {second}
  </testsuite>
</testsuites>
"""


class Runs:
    """Stands for running programs: notes the commands and writes the results of a pytest run."""

    def __init__(self, code: int = 0, *, failures: int = 0) -> None:
        self.commands: list[list[str]] = []
        self.limits_s: list[float | None] = []
        self.code, self.failures = code, failures

    def __call__(self, command: list[str], limit_s: float | None) -> int:
        self.commands.append(command)
        self.limits_s.append(limit_s)
        for option in command:
            if option.startswith("--junitxml="):
                path = Path(option.removeprefix("--junitxml="))
                second = FAILED if self.failures else PASSED
                path.write_text(RESULTS.format(failures=self.failures, second=second))
        return self.code


@pytest.fixture(autouse=True)
def tree(tmp_path, monkeypatch) -> Path:
    """Return a small checkout, whose stamps are written and read."""
    tree = tmp_path / "tree"
    for name in ("spark_consumer", "producer", "tests/spark", "tests/integration"):
        (tree / name).mkdir(parents=True)
        (tree / name / "one.py").write_text("")
    subprocess.run(["git", "init", "-q"], cwd=tree, check=True)
    monkeypatch.setattr(lanes, "STAMPS", Stamps(tree))
    return tree


def stamped(tree: Path) -> set[str]:
    return {path.name.replace("-", " ") for path in (tree / ".ci" / "tested").glob("*")}


def counts(results: list[lanes.Result]) -> list[tuple[str, int, int, int]]:
    return [(result.step, result.passed, result.failed, result.skipped) for result in results]


def test_every_step_of_a_lane_runs_and_the_total_is_the_last_line(capsys):
    runs = Runs()
    results = lanes.run_lane("test", [], run=runs)

    assert counts(results) == [(name, 3, 0, 1) for name in lanes.LANES["test"]]
    assert len(runs.commands) == len(lanes.LANES["test"])
    assert "tests/unit" in runs.commands[0]
    assert lanes.report(results[:1]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "3 passed, 0 failed"
    slowest = lines.index("the 2 slowest tests")
    assert lines[slowest + 1].split() == ["7.2", "s", "tests.unit.test_a::test_one"]


def test_a_failed_step_does_not_stop_the_others_and_is_repeated_at_the_end(capsys):
    runs = Runs(1, failures=2)
    results = lanes.run_lane("test", [], run=runs)

    assert counts(results) == [(name, 1, 2, 1) for name in lanes.LANES["test"]]
    assert lanes.report(results) == 1
    lines = capsys.readouterr().out.splitlines()
    steps = len(lanes.LANES["test"])
    assert lines[-1] == f"{steps} passed, {2 * steps} failed"
    at = lines.index(f"failed: {steps}")
    assert lines[at + 1] == "  tests.unit.test_a::test_two"
    assert lines[at + 4] == "      E  assert 1 == 2"
    assert at > lines.index(f"the {2 * steps} slowest tests")


def test_a_program_that_failed_is_named(capsys):
    lanes.report(lanes.run_checks("types", run=lambda _command, _limit_s: 1))

    assert "failed: 2\n  types\n  types, simulator\n" in capsys.readouterr().out


def test_a_test_that_hangs_ends_its_step_and_is_the_last_name_printed():
    """A step of the real programs takes half an hour; a merge's checks have ninety minutes."""
    runs = Runs()

    lanes.run_lane("test-real", [], run=runs)

    assert runs.limits_s == [3_600.0] * len(runs.commands)
    *steps, (*_, program, quick) = runs.commands
    assert all("-v" in command for command in steps)
    assert (program, quick) == ("tests.another_spark", "--quick")


def test_of_a_run_that_is_ended_the_tests_that_failed_and_hung_are_named(tmp_path, capsys):
    (tmp_path / "test_three.py").write_text(
        "import os\ndef test_a(): pass\ndef test_b(): assert 0\ndef test_c(): os._exit(134)\n"
    )

    def run(command, _limit_s):
        results = next(one for one in command if one.startswith("--junitxml="))
        options = ["-p", "tests.conftest", "-p", "no:randomly", results, str(tmp_path)]
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *options],
            cwd=lanes.ROOT,
            capture_output=True,
            check=False,
        ).returncode

    lanes.report(lanes.run_lane("unit", [], run=run))

    shown = capsys.readouterr().out
    failed = shown[shown.index("failed: 3") :].splitlines()
    assert failed[1:3] == ["  unit", "      pytest ended with exit code 134"]
    assert [line.rpartition("::")[2] for line in failed[3:7:2]] == ["test_b", "test_c"]
    assert [line.strip() for line in failed[4:8:2]] == ["it failed: see above", "it did not end"]


@pytest.mark.parametrize(
    ("code", "options", "failed"), [(4, [], 1), (5, [], 1), (5, ["-k", "gate"], 0)]
)
def test_a_pytest_that_ends_without_a_failed_test_has_failed_all_the_same(code, options, failed):
    """It could not start, or a worker of it was killed; only options may select nothing."""
    results = lanes.run_lane("unit", options, run=lambda _command, _limit_s: code)
    assert counts(results) == [("unit", 0, failed, 0)]


def test_ctrl_c_ends_the_lane():
    runs = Runs(130)

    with pytest.raises(KeyboardInterrupt):
        lanes.run_lane("test", [], run=runs)
    assert len(runs.commands) == 1


def test_options_go_to_every_pytest_run():
    runs = Runs()
    lanes.run_lane("test", ["-k", "gate"], run=runs)

    assert all(command[command.index("-k") + 1] == "gate" for command in runs.commands)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("tests/unit/schemas", {"unit": ["tests/unit/schemas"]}),
        (
            "tests/integration/test_demo.py::test_the_demo_proves_everything",
            {
                name: ["tests/integration/test_demo.py::test_the_demo_proves_everything"]
                for name in ("unit", "smoke")
            },
        ),
        ("tests/spark", {"spark": ["tests/spark"]}),
        ("tests", {name: list(lanes.STEPS[name].paths) for name in lanes.LANES["test"]}),
    ],
    ids=["folder", "test", "step", "all"],
)
def test_a_path_among_the_options_narrows_the_steps(asked, expected):
    runs = Runs()
    results = lanes.run_lane("test", [asked], run=runs)
    paths = [[one for one in command if one.startswith("tests")] for command in runs.commands]

    assert dict(zip([result.step for result in results], paths, strict=True)) == expected


def test_timings_are_appended_as_a_table(tmp_path):
    file = tmp_path / "tests.md"
    file.write_text("# Tests\n")
    runs = Runs()
    lanes.run_lane("unit", ["--timings", str(file)], run=runs)

    assert not [one for one in runs.commands[0] if "timings" in one]
    lines = file.read_text().splitlines()
    assert lines[:3] == ["# Tests", "", "## ./dev unit"]
    assert lines[-1].startswith("| unit | 3 | 0 | 1 | 0 |")


def test_ci_runs_each_step_once_and_all_of_them():
    runs = Runs()
    results = lanes.run_ci([], run=runs)

    names = [result.step for result in results]
    checks = [name for group in lanes.CHECKS.values() for name in group]
    steps = {name for lane in ("test", "test-real", "test-simulator") for name in lanes.LANES[lane]}
    assert len(names) == len(set(names))
    assert set(names) == {*checks, *steps} - {"tidy"}
    assert "tests/tidy" in lanes.STEPS["unit"].paths


def test_properties_try_the_same_examples_in_each_run_of_ci():
    ci, once = Runs(), Runs()
    lanes.run_ci([], run=ci)
    lanes.run_lane("test", [], run=once)

    def count(runs: Runs) -> tuple[int, int]:
        pytests = [
            command for command in runs.commands if any("junitxml" in word for word in command)
        ]
        return len(pytests), sum("--hypothesis-profile=ci" in one for one in pytests)

    assert count(ci)[0] == count(ci)[1] > len(lanes.LANES["test"])
    assert count(once) == (len(lanes.LANES["test"]), 0)


def test_ci_leaves_out_a_step_once_it_has_passed_and_until_what_it_covers_changes(
    tree, monkeypatch
):
    lanes.run_lane("test-real", [], run=Runs())
    assert stamped(tree) == {"spark", "slow spark", "another Spark", "integration"}

    names = {one.step for one in lanes.run_ci([], run=Runs())}
    assert not {"spark", "slow spark", "another Spark", "integration"} & names
    assert {"unit", "smoke", "simulation", "simulator"} <= names
    # What was asked for by name is run.
    assert "integration" in [one.step for one in lanes.run_ci(["tests/integration"], run=Runs())]

    (tree / "spark_consumer" / "two.py").write_text("1\n")
    monkeypatch.setattr(lanes, "STAMPS", Stamps(tree))
    names = {one.step for one in lanes.run_ci([], run=Runs())}
    assert {"spark", "slow spark", "another Spark", "integration"} <= names
    assert not {"simulation", "simulator"} & names


@pytest.mark.parametrize(
    ("options", "runs"), [([], Runs(1, failures=1)), (["-k", "split"], Runs())], ids=["red", "part"]
)
def test_a_failed_or_partial_run_leaves_no_stamp(tree, options, runs):
    lanes.run_lane("test", options, run=runs)

    assert stamped(tree) == set()


def test_what_is_edited_while_a_step_runs_does_not_count_as_tested(tree):
    edit = tree / "spark_consumer" / "one.py"
    runs = Runs()

    def run(command, limit_s):
        edit.write_text(f"{len(runs.commands)}\n")
        return runs(command, limit_s)

    lanes.run_lane("test-real", [], run=run)

    assert "spark" not in lanes._tested_steps()
    assert "slow spark" not in lanes._tested_steps()


def test_other_versions_of_spark_take_turns_as_the_code_changes(monkeypatch):
    found = []
    for digest in ("0", "1", "2", "f3", None):
        monkeypatch.setattr(lanes, "digest_of", {"another Spark": digest}.get)
        found.append(in_turn())
    assert found == ["4.1", "4.2", "4.1", "4.2", "4.1"]
