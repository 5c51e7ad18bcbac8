"""What the wheel holds: the import root, whole, and nothing beside it."""

from __future__ import annotations

import importlib.metadata
import itertools
import tomllib
import zipfile

import pytest

import tidegate

PACKAGES = {"schemas", "producer", "spark_consumer", "local_stack"}


@pytest.fixture(scope="session")
def names(wheel) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


@pytest.fixture(scope="session")
def project(repository) -> dict:
    return tomllib.loads((repository / "pyproject.toml").read_text())["project"]


def test_one_name_at_the_top(names):
    tops = {name.split("/")[0] for name in names}

    assert {"tidegate", f"tidegate-{tidegate.__version__}.dist-info"} == tops


def test_the_import_root_holds_the_packages_and_few_files(names):
    below = {name.split("/")[1] for name in names if name.startswith("tidegate/")}

    assert PACKAGES | {"lineage", "program", "__init__.py", "py.typed", "version.py"} == below


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_every_source_file_is_in(repository, names, package):
    sources = {
        f"tidegate/{path.relative_to(repository)}"
        for path in (repository / package).rglob("*.py")
        if "__pycache__" not in path.parts
    }

    assert sources
    assert set() == sources - set(names)
    assert f"tidegate/{package}/py.typed" in names


def test_every_data_file_is_in(repository, names):
    data = {
        f"tidegate/{path.relative_to(repository)}"
        for package in PACKAGES
        for path in (repository / package).rglob("*")
        if path.suffix in {".avsc", ".xml", ".sql"}
    }

    assert "tidegate/local_stack/parts/ivy.xml" in data
    assert any(name.endswith(".avsc") for name in data)
    assert set() == data - set(names)


def test_nothing_that_is_not_shipped(names):
    for name in names:
        for part in ("tests", "docs", "docker", "benchmarks", "__pycache__", ".tidegate"):
            assert part not in name.split("/"), name


def test_the_licence_is_in(names):
    assert any(name.endswith("/LICENSE") for name in names)


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
        assert module.replace(".", "/") + ".py" in names


def test_a_cluster_image_gets_neither_pyspark_nor_spanner(project):
    extras = project["optional-dependencies"]
    small = " ".join([*project["dependencies"], *extras["consumer"]])

    for name in ("pyspark", "delta-spark", "google", "grpc"):
        assert name not in small


def test_the_names_of_our_folders_are_never_asked_of_a_registry(project):
    extras = project["optional-dependencies"].values()

    for requirement in itertools.chain(project["dependencies"], *extras):
        assert not requirement.startswith(tuple(PACKAGES)), requirement
