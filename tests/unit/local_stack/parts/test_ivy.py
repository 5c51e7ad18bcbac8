"""Jars are fetched by the Ivy that comes with pyspark.

A script stands in for Java and does what Ivy would do with the folder it is given.
"""

from __future__ import annotations

import pytest

from tidegate.local_stack.errors import FetchError
from tidegate.local_stack.parts import ivy
from tidegate.local_stack.parts.ivy import find_ivy_jar, retrieve
from tidegate.local_stack.parts.java import Java

SCRIPT = """#!/bin/sh
echo "	found org.example#sample;1.0 in public"
echo "downloading sample-1.0.jar ..."
echo "$@" > arguments
cp ivy.xml list
echo "	[SUCCESSFUL ] org.example#sample;1.0!sample.jar (1ms)"
"""

BROKEN = """#!/bin/sh
echo "	:: UNRESOLVED DEPENDENCIES ::"
echo "	:: org.example#sample;1.0: not found"
exit 3
"""


@pytest.fixture
def fetch(tmp_path):
    """Fetch with a script in place of Java; return the folder."""
    work = tmp_path / "work"
    work.mkdir()

    def run(script=SCRIPT, report=lambda _line: None, environ=None):
        program = tmp_path / "java"
        program.write_text(script)
        program.chmod(0o755)
        retrieve(
            Java(program=program, major=17),
            b"<ivy-module/>",
            pattern="[conf]/[artifact].[ext]",
            work=work,
            cache=tmp_path / "cache",
            what="the samples",
            report=report,
            environ=environ,
        )
        return work

    return run


def test_ivy_gets_the_list_and_the_folders(fetch, tmp_path):
    work = fetch()

    words = (work / "arguments").read_text().split()
    assert words[words.index("-retrieve") + 1] == f"{work}/[conf]/[artifact].[ext]"
    assert words[words.index("-cache") + 1] == str(tmp_path / "cache")
    assert "-settings" not in words
    assert (work / "list").read_text() == "<ivy-module/>"
    assert not (work / "ivy.xml").exists()


def test_the_operators_own_settings_are_handed_to_ivy(fetch, tmp_path):
    mirror = str(tmp_path / "mirror.xml")
    work = fetch(environ={"PATH": "/usr/bin:/bin", "TIDEGATE_IVY_SETTINGS": mirror})

    assert f"-settings {mirror}" in (work / "arguments").read_text()


def test_progress_is_reported(fetch):
    lines: list[str] = []
    fetch(report=lines.append)

    assert lines == [
        "resolving the samples",
        "1 modules found, the latest org.example#sample;1.0",
        "0 files fetched, now sample-1.0.jar",
        "1 files fetched",
    ]


def test_a_failure_says_why(fetch):
    with pytest.raises(FetchError, match=r"the samples failed: .*sample;1\.0: not found") as caught:
        fetch(BROKEN)

    assert caught.value.fields["exit_code_of_ivy"] == 3
    assert "TIDEGATE_IVY_SETTINGS" in caught.value.hint


def test_ivy_comes_with_pyspark():
    pytest.importorskip("pyspark")

    assert find_ivy_jar().name.startswith("ivy-")


def test_without_pyspark_it_says_what_to_type(monkeypatch):
    monkeypatch.setattr(ivy.importlib.util, "find_spec", lambda _name: None)

    with pytest.raises(FetchError, match=r"pip install 'tidegate\[local\]'"):
        find_ivy_jar()
