"""Which Java is taken, and what is said when none is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tidegate.local_stack.errors import JavaMissingError, JavaUnsupportedError
from tidegate.local_stack.parts.java import (
    Java,
    candidates,
    find_java,
    install_hint,
    probe,
    require_java_home,
)


def make_java(folder: Path, version: str | None, *, exit_code: int = 0) -> Path:
    """A `java` that prints what a real one prints; without version a stub that runs nothing."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    said = f'openjdk version \\"{version}\\" 2024-01-16' if version else "No Java runtime present."
    program.write_text(f'#!/bin/sh\necho "{said}" >&2\nexit {exit_code}\n')
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("version", "major"),
    [
        ("17.0.15", 17),
        ("21", 21),
        ("21.0.2", 21),
        ("1.8.0_392", 8),
        ("23-ea", 23),
    ],
)
def test_probe_reads_the_major_version(tmp_path, version, major):
    assert major == probe(make_java(tmp_path, version)).major


def test_a_stub_is_no_java(tmp_path):
    assert probe(make_java(tmp_path, None, exit_code=1)) is None


def test_a_program_that_fails_is_no_java_whatever_it_prints(tmp_path):
    assert probe(make_java(tmp_path, "17.0.1", exit_code=1)) is None


def test_a_file_that_cannot_be_run_is_no_java(tmp_path):
    program = tmp_path / "java"
    program.write_bytes(b"\x00\x01")
    program.chmod(0o755)

    assert probe(program) is None


@pytest.mark.parametrize(
    ("major", "accepted"), [(16, False), (17, True), (19, True), (21, True), (22, False)]
)
def test_seventeen_to_twenty_one_are_accepted(major, accepted):
    assert accepted == Java(program=Path("/x/bin/java"), major=major).is_accepted


def test_home_is_behind_links(tmp_path):
    program = make_java(tmp_path / "jdk", "17.0.1")
    link = tmp_path / "java"
    link.symlink_to(program)

    assert (tmp_path / "jdk").resolve() == Java(program=link, major=17).home


def test_java_home_comes_before_path_and_path_before_usual_places(tmp_path):
    first = make_java(tmp_path / "a", "17.0.1")
    second = make_java(tmp_path / "b", "17.0.1")
    third = make_java(tmp_path / "c", "17.0.1")
    environ = {"JAVA_HOME": str(tmp_path / "a"), "PATH": str(tmp_path / "b" / "bin")}

    found = list(candidates(environ, places=[str(tmp_path / "c*" / "bin" / "java")]))

    assert [first, second, third] == found


def test_one_real_file_is_tried_once(tmp_path):
    program = make_java(tmp_path / "a", "17.0.1")
    (tmp_path / "linked").symlink_to(tmp_path / "a" / "bin")
    environ = {"PATH": os.pathsep.join([str(tmp_path / "linked"), str(program.parent)])}

    assert 1 == len(list(candidates(environ, places=())))


def test_usual_places_below_home_need_a_home(tmp_path):
    program = make_java(tmp_path / "jdks" / "x", "17.0.1")

    assert [program] == list(candidates({"HOME": str(tmp_path)}, places=["~/jdks/*/bin/java"]))
    assert [] == list(candidates({"HOME": ""}, places=["~/jdks/*/bin/java"]))


def test_a_stub_and_an_old_one_do_not_hide_a_good_one(tmp_path):
    make_java(tmp_path / "stub", None, exit_code=1)
    make_java(tmp_path / "old", "11.0.2")
    good = make_java(tmp_path / "good", "21.0.1")
    environ = {"JAVA_HOME": str(tmp_path / "old"), "PATH": str(tmp_path / "stub" / "bin")}

    found = find_java(environ, places=[str(tmp_path / "good/bin/java")])

    assert good == found.program


def test_missing_says_what_to_type(tmp_path):
    make_java(tmp_path / "stub", None, exit_code=1)

    with pytest.raises(JavaMissingError) as caught:
        find_java({"PATH": str(tmp_path / "stub" / "bin")}, places=())

    assert "17 to 21" in str(caught.value)
    assert "JAVA_HOME" in str(caught.value)
    assert 2 == caught.value.exit_code


def test_a_java_home_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(JavaMissingError) as caught:
        require_java_home({"JAVA_HOME": str(tmp_path / "gone")})

    text = f"JAVA_HOME is {tmp_path}/gone, and {tmp_path}/gone/bin/java does not exist"
    assert text in str(caught.value)
    assert 2 == caught.value.exit_code


def test_a_java_home_with_a_java_or_none_is_fine(tmp_path):
    make_java(tmp_path / "a", "17.0.1")

    require_java_home({"JAVA_HOME": str(tmp_path / "a")})
    require_java_home({})


def test_unsupported_names_what_was_found(tmp_path):
    make_java(tmp_path / "new", "23.0.1")

    with pytest.raises(JavaUnsupportedError, match="is Java 23") as caught:
        find_java({"JAVA_HOME": str(tmp_path / "new")}, places=())

    assert 2 == caught.value.exit_code


@pytest.mark.parametrize(
    ("tool", "command"),
    [
        ("brew", "brew install openjdk@17"),
        ("apt-get", "sudo apt-get install openjdk-17-jre-headless"),
        ("dnf", "sudo dnf install java-17-openjdk-headless"),
    ],
)
def test_the_hint_fits_the_machine(tmp_path, tool, command):
    program = tmp_path / tool
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)

    assert command in install_hint({"PATH": str(tmp_path)})
