"""What each part needs: the base alone carries everything up to the adapters."""

from __future__ import annotations

import subprocess
import sys

import pytest

EXTRAS = ("google", "grpc", "pyspark", "delta", "deltalake", "pandas", "pyarrow", "psutil")

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
"""


def failing(*packages: str, extras: tuple[str, ...] = EXTRAS) -> list[str]:
    code = CODE.format(extras=extras, packages=packages)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_probe_sees_what_is_hidden():
    """Otherwise the tests below could not fail."""
    assert ["psutil needs psutil"] == failing("psutil")
    assert [] == failing("json")


@pytest.mark.parametrize(
    "package",
    [
        "tidegate.schemas",
        "tidegate.producer.core",
        "tidegate.producer.driver",
        "tidegate.spark_consumer.core",
        "tidegate.local_stack.java",
        "tidegate.local_stack.jvm_parts",
        "tidegate.local_stack.stack",
        "tidegate.local_stack.cli",
    ],
)
def test_the_base_is_enough_up_to_the_adapters(package):
    assert [] == failing(package)


def test_the_face_imports_none_of_its_packages():
    code = "import sys, tidegate; print([m for m in sys.modules if m.startswith('tidegate.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "[]" == done.stdout.strip()


def test_the_producer_needs_spanner_in_its_adapters_only():
    needy = {line.split()[0] for line in failing("tidegate.producer")}

    # The composition root and the command that calls it wire the adapters.
    wired = ("tidegate.producer.adapters.", "tidegate.producer.app", "tidegate.producer.cli")
    assert all(name.startswith(wired) for name in needy), needy


def test_the_consumer_needs_pyspark_in_its_spark_part_only():
    needy = {line.split()[0] for line in failing("tidegate.spark_consumer")}

    assert all(name.startswith("tidegate.spark_consumer.spark") for name in needy), needy


def test_the_simulator_needs_no_more_than_its_own_extra():
    foreign = ("pyspark", "delta", "deltalake", "pandas", "psutil")

    assert [] == failing("tidegate.spanner_simulator", extras=foreign)


def test_the_producer_runs_without_pyspark_and_the_consumer_without_spanner():
    spark = ("pyspark", "delta", "deltalake", "pandas", "pyarrow")

    assert [] == failing("tidegate.producer", extras=spark)
    assert [] == failing("tidegate.spark_consumer", extras=("google", "grpc", "deltalake"))
