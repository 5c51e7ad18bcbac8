"""What each part needs: the base alone carries everything up to the adapters."""

from __future__ import annotations

import subprocess
import sys

import pytest

EXTRAS = (
    *("google", "grpc", "pyspark", "py4j", "delta", "deltalake", "matplotlib", "pandas"),
    *("pyarrow", "psutil"),
)

# Imports every module below the packages named, with the extras hidden; prints those that failed.
CODE = """
import importlib, pkgutil, sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {extras!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}} (hidden)", name=name)

sys.meta_path.insert(0, Hidden())
def modules(name):
    yield name
    package = sys.modules.get(name)
    if hasattr(package, "__path__"):
        for module in pkgutil.walk_packages(package.__path__, name + ".", onerror=lambda _: None):
            yield module.name

for name in {packages!r}:
    for module in modules(name):
        if not module.endswith("__main__"):
            try:
                importlib.import_module(module)
            except ModuleNotFoundError as error:
                print(module, "needs", error.name)
            except Exception as error:
                # Users import it by its names; its error says what to install.
                if not module.startswith("tidegate.spark_consumer.library"):
                    raise
                print(module, "says", error)
"""


def failing(*packages: str, extras: tuple[str, ...] = EXTRAS) -> list[str]:
    code = CODE.format(extras=extras, packages=packages)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_base_is_enough_up_to_the_adapters():
    # Otherwise the rest could not fail.
    assert failing("psutil") == ["psutil needs psutil"]
    assert failing("json") == []
    base = (
        *("schemas", "producer.core", "producer.driver", "spark_consumer.core"),
        *(
            f"local_stack.{name}"
            for name in ("parts.installed_java", "parts.jvm_parts", "parts.stack", "cli")
        ),
    )
    for package in base:
        assert failing(f"tidegate.{package}") == [], package
    code = "import sys, tidegate; print([m for m in sys.modules if m.startswith('tidegate.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['tidegate.version']"


@pytest.mark.parametrize(
    ("program", "rooms"),
    [
        # The composition root and the command that calls it wire the adapters.
        ("producer", ("kafka.", "spanner.", "translation.", "commands.", "cli")),
        # Those that `import-linter` allows to import pyspark.
        ("spark_consumer", ("batch", "checkpoint", "library", "sinks", "spark")),
    ],
)
def test_a_program_needs_its_extra_in_its_adapters_only(program, rooms):
    needy = {line.split()[0] for line in failing(f"tidegate.{program}")}
    allowed = tuple(f"tidegate.{program}.{room}" for room in rooms)
    assert [name for name in sorted(needy) if not name.startswith(allowed)] == []


def test_the_producer_runs_without_pyspark_and_the_consumer_without_spanner():
    spark = ("pyspark", "py4j", "delta", "deltalake", "pandas", "pyarrow")

    assert failing("tidegate.producer", extras=spark) == []
    found = failing("tidegate.spark_consumer", extras=("google", "grpc", "deltalake", "pyarrow"))
    # Spark writes what these modules would: nothing imports them before they are known to work.
    assert {line.split()[0] for line in found} == {
        f"tidegate.spark_consumer.sinks.{name}"
        for name in (
            "delta.direct.files",
            "delta.direct.table",
            "files.parquet_bytes",
        )
    }


# A program's entry point, with some modules hidden.
PROGRAM = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {extras!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}} (hidden)", name=name)

sys.meta_path.insert(0, Hidden())
from {package}.cli import main
sys.argv = [{package!r}, *{arguments!r}]
main()
"""
CONSUMER = [
    "run",
    *("--bootstrap-servers", "127.0.0.1:1"),
    *("--registry-url", "http://127.0.0.1:1"),
    *("--prefix", "bank"),
    *("--output", "out"),
    *("--checkpoint", "check"),
]


def ended(package: str, *arguments: str, extras: tuple[str, ...]) -> tuple[int, str, str]:
    """Run a program with some modules hidden; return its exit code and what it printed."""
    code = PROGRAM.format(extras=extras, package=package, arguments=list(arguments))
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("package", "arguments", "hidden", "text"),
    [
        ("tidegate.producer", ["run"], "google", 'pip install "tidegate[producer]"'),
        ("tidegate.producer", ["check"], "grpc", 'pip install "tidegate[producer]"'),
        ("tidegate.spark_consumer", CONSUMER, "pyspark py4j", 'pip install "tidegate[local]"'),
        ("tidegate.spark_consumer", CONSUMER, "delta", "pip install --no-deps delta-spark=="),
        ("tidegate.local_stack", ["up"], "psutil", 'pip install "tidegate[local]"'),
        ("tidegate.local_stack", ["demo"], "spanner_simulator", 'pip install "tidegate[local]"'),
    ],
)
def test_a_program_without_its_extra_says_what_to_type(package, arguments, hidden, text):
    exit_code, _, stderr = ended(package, *arguments, extras=tuple(hidden.split()))

    assert exit_code == 2
    assert text in stderr
    assert stderr.count("\n") == 1


@pytest.mark.parametrize(
    "package", ["tidegate.producer", "tidegate.spark_consumer", "tidegate.local_stack"]
)
def test_every_program_prints_its_version_whatever_is_installed(package):
    exit_code, stdout, stderr = ended(package, "--version", extras=EXTRAS)

    assert (exit_code, stderr) == (0, "")
    assert stdout.startswith("tidegate ")
