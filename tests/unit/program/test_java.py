"""The Java that Spark runs on: which one is taken, and what is said of one that cannot."""

from __future__ import annotations

import pytest

from tidegate.program.java import java_max, require_java
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


def test_java_home_wins_over_the_path_as_it_does_for_spark(java):
    home, path, other = java("17.0.1"), java("99", "path"), java("21", "other")
    assert require_java({"PATH": str(other.parent)}).program == other
    environ = {"JAVA_HOME": str(home.parents[1]), "PATH": str(path.parent)}
    assert require_java(environ).program == home
    environ = {"JAVA_HOME": str(path.parents[1]), "PATH": str(home.parent)}
    assert f"{path} is Java 99" in refused(**environ)


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("1.8.0_392", "is Java 8"),
        ("11.0.2", "is Java 11"),
        ("99", "is Java 99"),
        (None, "bin/java does not run"),  # a stub that only tells where to get Java
    ],
)
def test_a_java_that_spark_does_not_run_on_is_named(java, version, text):
    assert text in refused(PATH=str(java(version).parent))


def test_without_java_the_line_says_what_to_install(tmp_path):
    error_text = refused(PATH=str(tmp_path))
    assert error_text.startswith(f"Spark needs Java 17 to {java_max()}: no java is on the path")
    assert "JAVA_HOME" in error_text
    assert f"{tmp_path}/bin/java does not run (JAVA_HOME" in refused(JAVA_HOME=str(tmp_path))
