"""Which test runs when: steps select tests, a lane is a list of steps, `./dev LANE` runs it.

A step is one pytest run or one of the tests' own programs.  Every test belongs to a step, and every
step to a lane; tests/tidy/test_lanes.py proves it.

Standard library only: `dev` imports this module before anything is installed.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from xml.etree import ElementTree

from tests.stamps import Stamps
from tidegate.program.spark_versions import SPARK_LINES

ROOT = Path(__file__).resolve().parent.parent
SIMULATOR = "spanner_simulator"
STAMPS = Stamps(ROOT)

Run = Callable[[list[str], float | None], int]
"""Runs a program of `.venv` in the foreground, in the repository's top folder; its exit code.

After the seconds given, if any, the program is ended with SIGABRT, at which pytest prints the stack
of every thread.
"""

_LIMIT_S = 3_600.0
"""Half as long again as the longest step of `./dev ci` takes on two cores, or longer."""
_SLOWEST = 25
_FAILURES_SHOWN = 10
_FAILURE_LINES = 15
_LINE_MAX = 300
_INTERRUPTED = 130
_FAILED = ("failure", "error")
_NOTHING_COLLECTED = 5
_SAME_EXAMPLES = ("--hypothesis-profile=ci",)
"""A profile of Hypothesis itself: no clock, no database, examples that follow from the test."""


# ---------------------------------------------------------------- steps and lanes


@dataclass(frozen=True, slots=True)
class Selection:
    """A selection of tests for one pytest run."""

    paths: tuple[str, ...]
    markers: str = ""
    """An expression for pytest's `-m`: names of markers, `and`, `or`, `not`."""
    dist: str = ""
    """How pytest-xdist distributes them to several processes; empty for a single process."""
    processes: str = "logical"
    """How many: one for each core, or more where tests mostly wait for other programs."""
    is_ordered: bool = False
    """Whether files begin as they were collected; else xdist begins with those of most tests."""
    is_named: bool = False
    """Whether each test's name is printed before it runs: the last one is that which hangs."""
    limit_s: float | None = _LIMIT_S
    """pytest-timeout cannot end a test that hangs in a call of librdkafka; this does."""
    programs: tuple[str, ...] | None = None
    """Folders of the programs that the tests start.

    The step is left out of `run_ci` while these, the tests and all that they import are as they
    were when it passed; None: it always runs.
    """

    def command(self, options: Sequence[str], results: Path) -> list[str] | None:
        """Return the pytest run that writes its results as JUnit XML.

        Paths among `options` narrow the step's own; None if nothing of the step is left.
        """
        asked = _paths(options)
        paths = self._below(asked) if asked else self.paths
        if not paths:
            return None
        return [
            *("python", "-m", "pytest", "-v" if self.is_named else "-q", f"--junitxml={results}"),
            *(("-m", self.markers) if self.markers else ()),
            *(("-n", self.processes, "--dist", self.dist) if self.dist else ()),
            *(("--no-loadscope-reorder",) if self.is_ordered else ()),
            *(option for option in options if option not in asked),
            *paths,
        ]

    def _below(self, asked: Sequence[str]) -> list[str]:
        """Return what both the step and the caller ask for."""
        return [
            *(one for one in asked if any(PurePath(one).is_relative_to(p) for p in self.paths)),
            *(
                path
                for path in self.paths
                if path not in asked and any(PurePath(path).is_relative_to(one) for one in asked)
            ),
        ]


def _paths(options: Sequence[str]) -> list[str]:
    """Return those options that name tests."""
    return [option for option in options if (ROOT / option.split("::")[0]).exists()]


@dataclass(frozen=True, slots=True)
class Program:
    """A program that counts as one test: it has passed when it exits with 0."""

    command: tuple[str, ...]
    paths: tuple[str, ...] = ()
    programs: tuple[str, ...] | None = None
    """As those of a selection: with what it runs in `paths`, they tell when `run_ci` needs it."""
    limit_s: float | None = None
    markers = ""


_CONSUMER = ("spark_consumer",)
_PRODUCT = (
    *(*_CONSUMER, "producer", "lineage", "program", "schemas", "local_stack", "tidegate"),
    "spanner_simulator/src",
)
_FOLDERS = ("unit", "tidy", "packaging", "fuzz", "chaos", "mutants", "integration")

STEPS: dict[str, Selection | Program] = {
    "unit": Selection(
        tuple(f"tests/{name}" for name in _FOLDERS),
        "not integration and not deep",
        "loadfile",
        # Some wait for programs that they start.
        processes="3",
    ),
    "simulation": Selection(("tests/simulation",), "not deep", "worksteal", programs=()),
    # Each process has a Spark session, which the tests in it share.
    "spark": Selection(
        ("tests/spark",), "not slow and not deep", "loadfile", is_named=True, programs=_CONSUMER
    ),
    "smoke": Selection(("tests/integration",), "smoke", is_named=True, programs=_PRODUCT),
    # Each process has a broker of its own.
    "integration": Selection(
        ("tests/integration",),
        "integration and not smoke and not deep",
        "loadfile",
        # They wait more than half of the time.
        processes="3",
        # Chaos is one long test: last, it would be alone.
        is_ordered=True,
        is_named=True,
        programs=_PRODUCT,
    ),
    "slow spark": Selection(
        ("tests/spark",),
        "slow and not deep",
        "loadfile",
        is_ordered=True,
        is_named=True,
        programs=_CONSUMER,
    ),
    "another Spark": Program(
        ("python", "-m", "tests.another_spark", "--quick"),
        (
            "tests/spark/sinks/test_contract.py",
            "tests/spark/batch/test_batch.py",
            "tests/spark/library/test_query.py",
            "tests/spark/spark/test_query.py",
        ),
        (*_CONSUMER, "requirements", "tests/another_spark.py"),
        _LIMIT_S,
    ),
    # What these show is shown to `./dev ci` by fewer cases, or with smaller parts.
    "deep spark": Selection(("tests/spark",), "deep", "loadfile", is_ordered=True, is_named=True),
    "deep integration": Selection(("tests/integration",), "deep", "loadfile", is_named=True),
    "stores": Selection(("tests/stores",), is_named=True),
    "images": Selection(("tests/images",), is_named=True),
    "seeds": Program(("python", "-m", "tests.simulation", "--seeds", "2000")),
    "any schema": Program(("python", "-m", "tests.any_schema", "--seeds", "2000")),
    "any schema, sinks": Program(("python", "-m", "tests.any_schema", "--sinks", "--seeds", "200")),
    "mutants": Selection(("tests/simulation", "tests/mutants"), "deep", "worksteal", limit_s=None),
    "small worlds": Program(("python", "-m", "tests.simulation.exhaustive", "--deep")),
    "fuzz": Program(("python", "-m", "tests.fuzz", "--minutes", "5")),
    **{
        f"Spark {line.minor}": Program(("python", "-m", "tests.another_spark", line.minor))
        for line in SPARK_LINES[1:]
    },
    "simulator": Selection((f"{SIMULATOR}/tests",), dist="loadfile", programs=(SIMULATOR,)),
}

LANES: dict[str, tuple[str, ...]] = {
    "unit": ("unit",),
    "test": ("unit", "simulation", "spark", "smoke"),
    "test-real": ("integration", "spark", "slow spark", "another Spark"),
    "test-stores": ("stores",),
    "images": ("images",),
    "test-deep": (
        *("seeds", "any schema", "any schema, sinks", "mutants", "small worlds", "deep spark"),
        *("deep integration", "fuzz"),
        *(f"Spark {line.minor}" for line in SPARK_LINES[1:]),
    ),
    "test-simulator": ("simulator",),
}


# ---------------------------------------------------------------- checks of sources and wheels

_OF_SIMULATOR = f"{SIMULATOR}/pyproject.toml"
_BUILD = ("python", "-m", "build", "--wheel", "--no-isolation", "--outdir")

# Both distributions are checked, each with its own configuration.
CHECKS: dict[str, dict[str, tuple[str, ...]]] = {
    "style": {
        "style": ("ruff", "check", "."),
        "format": ("ruff", "format", "--check", "."),
    },
    "types": {
        "types": ("mypy", "-p", "tidegate"),
        "types, simulator": ("mypy", "--config-file", _OF_SIMULATOR, "-p", "spanner_simulator"),
    },
    "imports": {
        "imports": ("lint-imports",),
        "imports, simulator": ("lint-imports", "--config", _OF_SIMULATOR),
    },
    "site": {
        "site": ("python", "docs/build_site.py"),
    },
    "tidy": {
        "tidy": ("python", "-m", "pytest", "-q", "tests/tidy"),
        "tidy, simulator": ("python", "-m", "pytest", "-q", f"{SIMULATOR}/tests/tidy"),
    },
    "wheel": {
        "wheel": (*_BUILD, "dist", "."),
        "wheel's files": ("check-wheel-contents", "dist"),
        "wheel, simulator": (*_BUILD, "dist/simulator", SIMULATOR),
        "its files": ("check-wheel-contents", "--toplevel", SIMULATOR, "dist/simulator"),
        # Of this Python and system only; this takes a C compiler.
        "wheel, accelerator": (*_BUILD, "dist/accelerator", "accelerator"),
        "accelerator's files": (
            *("check-wheel-contents", "--toplevel"),
            *(f"tidegate_accelerator{sysconfig.get_config_var('EXT_SUFFIX')}", "dist/accelerator"),
        ),
    },
}

LINT = ("style", "types", "imports", "site", "tidy")


# ---------------------------------------------------------------- results


@dataclass(slots=True)
class Result:
    """The result of one step."""

    step: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    """CPU time of the step's programs and of those that they have waited for."""
    tests: list[tuple[float, str]] = field(default_factory=list)
    """Seconds and name of each test."""
    failures: list[tuple[str, str]] = field(default_factory=list)
    """Name and text of each test that failed; a program's name without a text."""


def report(results: Sequence[Result]) -> int:
    """Print the slowest tests, what failed, a line per step, the total; return the exit code.

    A log is often kept by its end only, so the failures are repeated there.
    """
    slowest = sorted((test for result in results for test in result.tests), reverse=True)[:_SLOWEST]
    if slowest:
        print(f"\nthe {len(slowest)} slowest tests")
        for seconds, name in slowest:
            print(f"{seconds:>8.1f} s  {name}")
    failures = [failure for result in results for failure in result.failures]
    if failures:
        print(f"\nfailed: {len(failures)}")
    for name, text in failures[:_FAILURES_SHOWN]:
        print(f"  {name}")
        for line in text.splitlines()[-_FAILURE_LINES:]:
            print(f"      {line[:_LINE_MAX]}")
    for name, _ in failures[_FAILURES_SHOWN:]:
        print(f"  {name}")
    print(f"\n{'step':<20}{'passed':>8}{'failed':>8}{'skipped':>9}{'seconds':>9}{'CPU':>7}")
    for result in results:
        print(
            f"{result.step:<20}{result.passed:>8}{result.failed:>8}{result.skipped:>9}"
            f"{result.seconds:>9.0f}{result.cpu_seconds:>7.0f}"
        )
    seconds = sum(result.seconds for result in results)
    cpu_seconds = sum(result.cpu_seconds for result in results)
    print(f"{'all':<45}{seconds:>9.0f}{cpu_seconds:>7.0f}\n")
    failed = sum(result.failed for result in results)
    print(f"{sum(result.passed for result in results)} passed, {failed} failed", flush=True)
    return 1 if failed else 0


def append_timings(path: Path, title: str, results: Iterable[Result]) -> None:
    """Append the steps' figures to a Markdown file, as a table with a heading."""
    lines = [
        f"\n## {title}\n",
        "| step | passed | failed | skipped | seconds | CPU seconds |",
        "| --- | --- | --- | --- | --- | --- |",
        *(
            f"| {result.step} | {result.passed} | {result.failed} | {result.skipped} "
            f"| {result.seconds:.0f} | {result.cpu_seconds:.0f} |"
            for result in results
        ),
    ]
    with path.open("a") as file:
        file.write("\n".join(lines) + "\n")


def _read_results(result: Result, path: Path) -> None:
    for suite in ElementTree.parse(path).iter("testsuite"):
        count = {name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors")}
        result.skipped += int(suite.get("skipped", 0))
        result.failed += count["failures"] + count["errors"]
        result.passed += count["tests"] - result.failed - result.skipped
    for case in ElementTree.parse(path).iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        result.tests.append((float(case.get("time", 0)), name))
        result.failures += [
            (name, one.text or one.get("message", "")) for one in case if one.tag in _FAILED
        ]


def _read_progress(path: Path) -> list[tuple[str, str]]:
    """Return which tests have failed, and which began and did not end (see `tests/conftest.py`)."""
    if not path.exists():
        return []
    tests: dict[str, set[str]] = {"begun": set(), "failed": set(), "ended": set()}
    for line in path.read_text().splitlines():
        word, _, name = line.partition(" ")
        tests[word].add(name)
    return [
        *((name, "it failed: see above") for name in sorted(tests["failed"])),
        *((name, "it did not end") for name in sorted(tests["begun"] - tests["ended"])),
    ]


# ---------------------------------------------------------------- running


def run_lane(
    lane: str,
    arguments: Sequence[str],
    *,
    run: Run,
    without: Iterable[str] = (),
    always: Sequence[str] = (),
) -> list[Result]:
    """Run the lane's steps, one after another, and return their results.

    `arguments` go to every pytest run, except `--timings FILE`, and so does `always`, which selects
    no tests.  Left out are the steps in `without`, and those that contain none of the paths in
    `arguments`, as is each program then.  A step that fails does not stop the others; Ctrl-C does,
    with KeyboardInterrupt.
    A step that passes without options leaves the stamp that `run_ci` looks at.
    """
    parser = argparse.ArgumentParser(prog=f"./dev {lane}", add_help=False, allow_abbrev=False)
    parser.add_argument("--timings", type=Path)
    own, options = parser.parse_known_args(arguments)
    steps = [name for name in LANES[lane] if name not in set(without)]
    results: list[Result] = []
    for name in steps:
        # What is edited while the step runs was not tested.
        digest = None if options else digest_of(name)
        result = _run_step(name, options, run=run, always=always)
        if result is not None:
            results.append(result)
            if result.passed and not result.failed:
                STAMPS.write(name, digest)
    if own.timings is not None:
        append_timings(own.timings, f"./dev {lane}", results)
    return results


def run_checks(*groups: str, run: Run, without: Iterable[str] = ()) -> list[Result]:
    """Run every check of these groups, also after one has failed, and return their results."""
    if "wheel" in groups:
        shutil.rmtree(ROOT / "dist", ignore_errors=True)
    checks = [
        (name, command)
        for group in groups
        for name, command in CHECKS[group].items()
        if name not in set(without)
    ]
    if not _has_compiler():
        print("\nthe accelerator's wheel is left out: it takes a C compiler")
        checks = [(name, command) for name, command in checks if "accelerator" not in name]
    return [_run_program(name, command, run=run) for name, command in checks]


def _has_compiler() -> bool:
    return shutil.which(str(sysconfig.get_config_var("CC") or "cc").split()[0]) is not None


def run_ci(arguments: Sequence[str], *, run: Run) -> list[Result]:
    """Run all that must pass before a merge, each step once, and return the results.

    The same code gets the same answer: properties try the examples that follow from the test's
    own text.  Other runs of them, and `./dev fuzz`, try new ones each time.
    """
    tested = () if arguments else _tested_steps()
    for name in tested:
        print(f"\n{name} is left out: it has passed, and nothing that it covers has changed since")
    # The step `unit` has the same tests.
    results = run_checks(*LINT, run=run, without=("tidy",))
    ran: set[str] = set(tested)
    for lane in ("test", "test-real", "test-simulator"):
        results += run_lane(lane, arguments, run=run, without=ran, always=_SAME_EXAMPLES)
        ran |= {*LANES[lane]}
    return results + run_checks("wheel", run=run)


def digest_of(name: str) -> str | None:
    """Return the hash of what a step covers as it is on disk; None if it has no stamp."""
    step = STEPS[name]
    if step.programs is None:
        return None
    return STAMPS.digest((*step.paths, *step.programs), step.markers)


def _tested_steps() -> tuple[str, ...]:
    return tuple(name for name in STEPS if STAMPS.is_tested(name, digest_of(name)))


def _run_program(
    name: str, command: Sequence[str], *, run: Run, limit_s: float | None = None
) -> Result:
    print(f"\n==== {name}", flush=True)
    result = Result(name)
    code = _timed(result, list(command), run, limit_s)
    result.passed, result.failed = int(code == 0), int(code != 0)
    if code != 0:
        result.failures.append((name, ""))
    return result


def _run_step(
    name: str, options: Sequence[str], *, run: Run, always: Sequence[str]
) -> Result | None:
    step = STEPS[name]
    if isinstance(step, Program):
        if _paths(options):
            return None
        return _run_program(name, step.command, run=run, limit_s=step.limit_s)
    result = Result(name)
    with tempfile.TemporaryDirectory(prefix="tidegate-test-results-") as folder:
        path = Path(folder) / "results.xml"
        command = step.command(options, path)
        if command is None:
            return None
        command += always
        print(f"\n==== {name}", flush=True)
        code = _timed(result, command, run, step.limit_s)
        if path.exists():
            _read_results(result, path)
        progress = _read_progress(Path(f"{path}.progress"))
    selects_nothing = code == _NOTHING_COLLECTED and options
    if code != 0 and not result.failed and not selects_nothing:
        result.failed = 1
        result.failures.append((name, f"pytest ended with exit code {code}"))
        result.failures += progress
    return result


def _timed(result: Result, command: list[str], run: Run, limit_s: float | None) -> int:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    code = run(command, limit_s)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    result.seconds = time.monotonic() - began
    result.cpu_seconds = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    if code == _INTERRUPTED:
        raise KeyboardInterrupt
    return code
