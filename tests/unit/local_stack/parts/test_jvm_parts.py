"""Fetching the JVM parts once, and knowing when a set is complete.

A script stands in for Java and does what Ivy would do with the folder it is given.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from tidegate.local_stack.errors import FetchError
from tidegate.local_stack.parts import jvm_parts
from tidegate.local_stack.parts.java import Java
from tidegate.local_stack.parts.jvm_parts import (
    cache_dir,
    fetch_jvm_parts,
    fetched_jvm_parts,
)

IVY = """#!/bin/sh
echo "$@" >> "{calls}"
echo "	found org.example#sample;1.0 in public"
echo "downloading sample-1.0.jar ..."
mkdir -p broker spark registry content
echo broker > broker/kafka_2.13-4.1.1.jar
echo spark > spark/delta.jar
mkdir -p iceberg; echo iceberg > iceberg/runtime.jar
echo runner > content/registry-app-runner.jar
tar czf registry/registry-app-all.tar.gz -C content registry-app-runner.jar
rm -r content
echo "	[SUCCESSFUL ] org.example#sample;1.0!sample.jar (1ms)"
"""

BROKEN_IVY = """#!/bin/sh
echo "	:: UNRESOLVED DEPENDENCIES ::"
echo "	:: org.example#sample;1.0: not found"
exit 1
"""


@pytest.fixture
def calls(tmp_path) -> Path:
    return tmp_path / "calls"


@pytest.fixture
def java(tmp_path, calls) -> Java:
    return make_java(tmp_path, IVY.format(calls=calls))


def make_java(tmp_path: Path, script: str) -> Java:
    program = tmp_path / "java"
    program.write_text(script)
    program.chmod(0o755)
    return Java(program=program, major=17)


def number_of_calls(calls: Path) -> int:
    return len(calls.read_text().splitlines())


@pytest.fixture
def cache(tmp_path) -> Path:
    return tmp_path / "cache"


def test_a_fetched_set_is_whole(java, cache):
    assert fetched_jvm_parts(cache) is None

    parts = fetch_jvm_parts(java, cache=cache)

    assert parts == fetched_jvm_parts(cache)
    assert str(parts.root / "broker" / "*") == parts.broker_class_path
    assert ["delta.jar"] == [jar.name for jar in parts.spark_jars]
    assert ["runtime.jar"] == [jar.name for jar in parts.iceberg_jars]
    assert "runner\n" == parts.registry_jar.read_text()
    assert not list(parts.root.rglob("*.tar.gz"))


def test_nothing_else_is_left_in_the_cache(java, cache):
    parts = fetch_jvm_parts(java, cache=cache)

    left = {path.name for path in (cache / "jvm").iterdir()}
    assert {parts.root.name, f"{parts.root.name}.lock"} == left


def test_a_second_run_fetches_nothing(java, cache, calls):
    fetch_jvm_parts(java, cache=cache)
    fetch_jvm_parts(java, cache=cache)

    assert 1 == number_of_calls(calls)


@pytest.mark.parametrize("damage", ["missing", "short", "foreign"])
def test_a_damaged_set_is_fetched_again(java, cache, calls, damage):
    root = fetch_jvm_parts(java, cache=cache).root
    jar = root / "spark" / "delta.jar"
    match damage:
        case "missing":
            jar.unlink()
        case "short":
            jar.write_text("")
        case "foreign":
            (root / "spark" / "other.jar").write_text("x")

    assert fetched_jvm_parts(cache) is None
    fetch_jvm_parts(java, cache=cache)
    assert 2 == number_of_calls(calls)
    assert "spark\n" == jar.read_text()


def test_two_runs_at_once_fetch_once(java, cache, calls):
    runs = [
        threading.Thread(target=fetch_jvm_parts, args=(java,), kwargs={"cache": cache})
        for _ in range(3)
    ]
    for run in runs:
        run.start()
    for run in runs:
        run.join(30)

    assert 1 == number_of_calls(calls)
    assert fetched_jvm_parts(cache) is not None


def test_a_failure_says_why_and_publishes_nothing(tmp_path, cache):
    java = make_java(tmp_path, BROKEN_IVY)

    with pytest.raises(FetchError, match=r"org\.example#sample;1\.0: not found"):
        fetch_jvm_parts(java, cache=cache)
    assert fetched_jvm_parts(cache) is None


def test_a_registry_that_is_not_among_the_jars_is_an_error(tmp_path, cache):
    java = make_java(tmp_path, "#!/bin/sh\nmkdir -p broker spark registry\n")

    with pytest.raises(FetchError, match="the schema registry's archive was not fetched") as caught:
        fetch_jvm_parts(java, cache=cache)
    assert "ivysettings.xml" in caught.value.hint
    assert fetched_jvm_parts(cache) is None


def test_another_list_of_parts_is_another_folder(java, cache, monkeypatch):
    first = fetch_jvm_parts(java, cache=cache).root
    monkeypatch.setattr(jvm_parts, "_ivy_xml", lambda: b"<ivy-module/>")

    assert fetched_jvm_parts(cache) is None
    assert first != fetch_jvm_parts(java, cache=cache).root


def test_a_stamp_that_is_no_json_counts_as_none(java, cache):
    root = fetch_jvm_parts(java, cache=cache).root
    (root / "stamp.json").write_text("{")

    assert fetched_jvm_parts(cache) is None


def test_the_stamp_lists_every_file(java, cache):
    root = fetch_jvm_parts(java, cache=cache).root

    listed = json.loads((root / "stamp.json").read_text())
    assert {
        "broker/kafka_2.13-4.1.1.jar",
        "iceberg/runtime.jar",
        "spark/delta.jar",
        "registry/registry-app-runner.jar",
    } == (set(listed))


def test_the_cache_follows_the_environment():
    assert Path("/x/tidegate") == cache_dir({"XDG_CACHE_HOME": "/x", "HOME": "/home/me"})
    assert Path("/home/me/.cache/tidegate") == cache_dir({"HOME": "/home/me"})


def test_an_empty_home_is_not_the_current_folder():
    assert cache_dir({"HOME": ""}).is_absolute()
