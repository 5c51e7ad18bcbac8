"""What the wheel holds: the import root, whole, and nothing beside it."""

from __future__ import annotations

import importlib.metadata
import itertools
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile

import pytest

import tidegate

PACKAGES = {"schemas", "lineage", "program", "producer", "spark_consumer", "local_stack"}


@pytest.fixture(scope="session")
def names(wheel) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


@pytest.fixture(scope="session")
def project(repository) -> dict:
    return tomllib.loads((repository / "pyproject.toml").read_text())["project"]


def test_the_import_root_is_whole_and_alone(repository, names):
    tops = {name.split("/")[0] for name in names}
    assert tops == {"tidegate", f"tidegate-{tidegate.__version__}.dist-info"}
    below = {name.split("/")[1] for name in names if name.startswith("tidegate/")}
    assert below == PACKAGES | {"lineage", "program", "__init__.py", "py.typed", "version.py"}
    assert any(name.endswith("/LICENSE") for name in names)
    shipped = {
        f"tidegate/{path.relative_to(repository)}"
        for package in PACKAGES
        for path in (repository / package).rglob("*")
        if path.suffix in {".py", ".avsc", ".xml", ".sql"} and "__pycache__" not in path.parts
    }
    shipped |= {f"tidegate/{package}/py.typed" for package in PACKAGES}
    assert "tidegate/local_stack/parts/ivy.xml" in shipped
    assert shipped - set(names) == set()


def test_the_version_is_said_once(wheel, project):
    assert project["version"] == tidegate.__version__
    assert project["version"] == importlib.metadata.version("tidegate")
    assert wheel.name.startswith(f"tidegate-{project['version']}-py3-none-any")


def test_scripts_lead_to_modules_that_are_in(names, project):
    scripts = project["scripts"]

    assert {
        "tidegate-producer",
        "tidegate-consumer",
        "tidegate-local",
        "tidegate-spanner-simulator",
    } == set(scripts)
    for target in scripts.values():
        module, function = target.split(":")
        assert function == "main"
        path = module.replace(".", "/")
        assert {f"{path}.py", f"{path}/__init__.py"} & set(names)


def test_requirements_are_small_and_none_has_the_name_of_a_folder(project):
    """A cluster's image gets neither pyspark nor Spanner."""
    extras = project["optional-dependencies"]
    small = " ".join([*project["dependencies"], *extras["consumer"]])
    assert [one for one in ("pyspark", "delta-spark", "google", "grpc") if one in small] == []
    every = itertools.chain(project["dependencies"], *extras.values())
    assert [one for one in every if one.startswith(tuple(PACKAGES))] == []


LAUNCHED = """
import importlib.util, runpy, sys

# What Python does with the folder of a program that it is given.
sys.path.insert(0, sys.argv[1])
sys.argv = [sys.argv[2], "--help"]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit as end:
    print("ended with", end.code)
print(importlib.util.find_spec("checkpoint"))
"""


@pytest.mark.parametrize("is_copied", [False, True])
def test_spark_submit_is_given_a_file_of_the_wheel(unpacked, tmp_path, is_copied):
    """By its path, where the package's own modules hide no other; or a copy in a bucket."""
    program = unpacked / "tidegate/spark_consumer/__main__.py"
    if is_copied:
        program = shutil.copy(program, tmp_path / "launch.py")
    done = subprocess.run(
        [sys.executable, "-c", LAUNCHED, str(program.parent), str(program)],
        env={**os.environ, "PYTHONPATH": str(unpacked)},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.stdout.endswith("ended with 0\nNone\n"), done.stderr
    assert "tidegate-consumer" in done.stdout or "COMMAND" in done.stdout
