"""Everything is `tidegate.…`: foreign modules of our folders' names change nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

PACKAGES = ("schemas", "lineage", "program", "producer", "spark_consumer", "local_stack")

# Imports across packages, reads package data, and shows whose modules it got.
CODE = """
import tidegate.local_stack.parts.installed_java, tidegate.local_stack.parts.jvm_parts
import tidegate.producer, tidegate.schemas, tidegate.schemas.topics
import tidegate.spark_consumer
import schemas, producer
print(schemas.OWNER, producer.OWNER, tidegate.schemas.topics.__name__)
print(len(tidegate.local_stack.parts.jvm_parts._ivy_xml()) > 0)
print(tidegate.__file__)
"""


@pytest.fixture
def foreign(tmp_path):
    """A folder with somebody else's `schemas` and `producer`: one a module, one a package."""
    folder = tmp_path / "foreign"
    (folder / "producer").mkdir(parents=True)
    (folder / "schemas.py").write_text("OWNER = 'theirs'\n")
    (folder / "producer" / "__init__.py").write_text("OWNER = 'theirs'\n")
    return folder


def test_foreign_modules_of_our_names_come_first_and_do_no_harm(
    installed, foreign, tmp_path, repository
):
    first, second, where = installed.run(CODE, first=(foreign,), folder=tmp_path).splitlines()

    assert "theirs theirs tidegate.schemas.topics" == first
    assert "True" == second
    # The right install was looked at.
    assert (installed.name == "editable") == where.startswith(str(repository))
    # Started in the folder that holds the foreign modules, as a notebook is.
    assert first == installed.run(CODE, folder=foreign).splitlines()[0]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_bare_name_is_refused(package, repository, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", f"import {package}"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(repository)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert 1 == done.returncode
    assert "ImportError" in done.stderr
    assert f"tidegate.{package}" in done.stderr.splitlines()[-1]


def test_every_package_is_typed_and_a_relative_link(repository):
    """An absolute link would lead every clone back to the first one."""
    for package in PACKAGES:
        assert (repository / package / "py.typed").exists()
        assert str((repository / "tidegate" / package).readlink()) == f"../{package}"


@pytest.mark.parametrize(
    ("module", "libraries"),
    [
        # `dev` imports it before anything is installed.
        ("tidegate.local_stack.parts.installed_java", ("pydantic", "structlog", "rich")),
        ("tidegate.local_stack.cli", ("grpc", "deltalake", "pyarrow", "confluent_kafka")),
        ("tidegate.producer.cli", ("grpc", "google", "confluent_kafka", "fastavro")),
        ("tidegate.spark_consumer.cli", ("pyspark", "deltalake", "pyarrow", "google")),
        ("tidegate", ("pyspark", "pydantic", "confluent_kafka")),
    ],
)
def test_a_program_starts_without_the_libraries_of_its_commands(module, libraries, repository):
    """`--help` answers at once, and a part of Tidegate needs no library of the others."""
    code = f"import sys, {module}; print([name for name in {libraries} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "[]\n"
