"""The tests that tell whether a version of Spark fits, on that version.

`./dev test-spark 4.1` runs them: the sinks' contract suite, Iceberg where it has a runtime, the
checkpoint's storage, sessions, a batch killed between its steps, and the small demo.  `./dev ci`
runs some quick ones on one version; which one follows from the consumer's code, so that
the versions take turns as it changes.  pyspark is the only package that differs from `.venv`: it is
installed once into a folder of the user's cache, which comes first on the path.  The jars are those
of the table of versions.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests import lanes
from tidegate.local_stack.parts.jvm_parts import cache_dir, only_one
from tidegate.program.spark_versions import SPARK_LINES, SparkLine

_ROOT = Path(__file__).resolve().parents[1]
_REQUIREMENTS = _ROOT / "requirements"
_TESTS = (
    "tests/spark/sinks/test_contract.py",
    "tests/spark/sinks/test_iceberg.py",
    "tests/spark/checkpoint",
    "tests/spark/spark/test_session.py",
    "tests/spark/test_all_sinks_killed.py",
    "tests/integration/test_demo.py",
)
_MARKERS = "smoke or (spark and not deep)"
_STEP = "another Spark"
_QUICK_OPTIONS = ("-m", "spark and not slow and not deep", "-n", "logical", "--dist", "loadfile")
_FETCH = """
import pyspark
from tidegate.local_stack.parts.installed_java import find_java
from tidegate.local_stack.parts.jvm_parts import fetch_jvm_parts
fetch_jvm_parts(find_java(), report=lambda line: None)
print(pyspark.__version__)
"""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="./dev test-spark", description=__doc__.split("\n")[0])
    lines = {line.minor: line for line in SPARK_LINES[1:]}
    parser.add_argument("version", nargs="?", choices=lines, help="of Spark; else one in turn")
    parser.add_argument("--quick", action="store_true", help="only what `./dev ci` runs")
    own, options = parser.parse_known_args(arguments)
    line = lines[own.version or in_turn()]
    environ = environment(line)
    fetching = subprocess.run(
        [sys.executable, "-c", _FETCH],
        cwd=_ROOT, env=environ, stdout=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    found = fetching.stdout.strip()
    if fetching.returncode != 0 or found != line.pyspark:
        print(f"{line.pyspark} is wanted, and pyspark is {found or 'absent'}", file=sys.stderr)
        return fetching.returncode or 2
    print(f"pyspark {found}, {line.packages} {line.iceberg_packages}", flush=True)
    usual, paths = (
        (_QUICK_OPTIONS, lanes.STEPS[_STEP].paths) if own.quick else (("-m", _MARKERS), _TESTS)
    )
    asked = any((_ROOT / option.split("::")[0]).exists() for option in options)
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-v", *usual),
            *(options if asked else (*options, *paths)),
        ],
        cwd=_ROOT, env=environ, check=False,
    ).returncode  # fmt: skip


def in_turn() -> str:
    """Return the version that is due with this code: for the same code the same one."""
    digest = lanes.digest_of(_STEP) or "0"
    return SPARK_LINES[1 + int(digest, 16) % (len(SPARK_LINES) - 1)].minor


def environment(line: SparkLine) -> Mapping[str, str]:
    """Return the environment in which this pyspark is imported; it is installed the first time."""
    folder = cache_dir() / "pyspark" / line.pyspark
    folder.parent.mkdir(parents=True, exist_ok=True)
    with only_one(folder.with_name(f"{folder.name}.lock"), report=print):
        if not folder.exists():
            _install(line, folder)
    path = [str(folder), str(_ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}


def _install(line: SparkLine, folder: Path) -> None:
    """Install pyspark into a folder, which appears by one rename."""
    print(f"installing pyspark {line.pyspark} into {folder}", flush=True)
    work = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(work, ignore_errors=True)
    requirements = _REQUIREMENTS / f"spark-{line.minor}.txt"
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile")
    subprocess.run(
        [*pip, "--require-hashes", "-r", str(requirements), "--target", str(work)], check=True
    )
    work.rename(folder)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
