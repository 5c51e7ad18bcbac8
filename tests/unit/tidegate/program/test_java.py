"""The Java that Spark would start, and what is said when it would not run."""

from __future__ import annotations

import pytest

from tidegate.program.java import require_java
from tidegate.schemas.errors import ConfigError


@pytest.fixture
def java(tmp_path):
    """Write a `java` that prints what a real one prints; without version a stub."""

    def write(version, folder="home"):
        program = tmp_path / folder / "bin" / "java"
        program.parent.mkdir(parents=True)
        said = f'openjdk version \\"{version}\\"' if version else "No Java runtime present."
        program.write_text(f'#!/bin/sh\necho "{said}" >&2\nexit {0 if version else 1}\n')
        program.chmod(0o755)
        return program

    return write


def refused(**environ):
    with pytest.raises(ConfigError) as caught:
        require_java(environ)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("version", ["17.0.15", "21"])
def test_the_java_on_the_path_is_taken(java, version):
    program = java(version)
    assert require_java({"PATH": str(program.parent)}).program == program


def test_java_home_wins_over_the_path_as_it_does_for_spark(java):
    home, path = java("17.0.1"), java("23", "path")
    environ = {"JAVA_HOME": str(home.parents[1]), "PATH": str(path.parent)}
    assert require_java(environ).program == home
    environ = {"JAVA_HOME": str(path.parents[1]), "PATH": str(home.parent)}
    assert f"{path} is Java 23" in refused(**environ)


def test_without_java_the_line_says_what_to_install(tmp_path):
    error_text = refused(PATH=str(tmp_path))
    assert error_text.startswith("Spark needs Java 17 to 21: no java is on the path")
    assert "JAVA_HOME" in error_text


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2", "23"])
def test_a_version_that_spark_does_not_run_on_is_named(java, version):
    error_text = refused(PATH=str(java(version).parent))
    assert f"is Java {8 if version.startswith('1.8') else int(version[:2])}" in error_text


def test_a_stub_that_only_tells_where_to_get_java_does_not_pass(java):
    assert "bin/java does not run" in refused(PATH=str(java(None).parent))


def test_a_java_home_without_java_is_named(tmp_path):
    assert f"{tmp_path}/bin/java does not run (JAVA_HOME" in refused(JAVA_HOME=str(tmp_path))
