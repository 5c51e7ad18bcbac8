"""Java, the parts that run on it, and their archives of classes."""

from __future__ import annotations

import json
import os
import runpy
import sys
import tarfile
import threading
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock
from xml.etree import ElementTree

import pytest

from tidegate.local_stack.errors import (
    FetchError,
    JavaMissingError,
    JavaUnsupportedError,
    PartFailedError,
)
from tidegate.local_stack.parts import class_recording as class_recording_module
from tidegate.local_stack.parts import jvm_parts
from tidegate.local_stack.parts.class_archives import SILENT, ClassArchives, class_archives
from tidegate.local_stack.parts.class_recording import are_class_archives_made, make_class_archives
from tidegate.local_stack.parts.installed_java import candidates, find_java, require_java_home
from tidegate.local_stack.parts.jvm_parts import (
    JvmParts,
    cache_dir,
    fetch_jvm_parts,
    fetched_jvm_parts,
)
from tidegate.local_stack.parts.kafka_broker import BROKER, FORMATTER
from tidegate.local_stack.parts.stack import REGISTRY
from tidegate.program import java as java_module
from tidegate.program import spark_versions
from tidegate.program.java import Java, install_hint, java_max, probe
from tidegate.program.spark_versions import DELTA, SPARK_LINES


def write_program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}")
    path.chmod(0o755)
    return path


def make_java(folder: Path, version: str | None, *, exit_code: int = 0) -> Path:
    """A `java` that prints what a real one prints; without version a stub that runs nothing."""
    said = f'openjdk version \\"{version}\\" 2024-01-16' if version else "No Java runtime present."
    return write_program(folder / "bin" / "java", f'echo "{said}" >&2\nexit {exit_code}\n')


@pytest.mark.parametrize(
    ("version", "exit_code", "major"),
    [
        ("17.0.15", 0, 17),
        ("21", 0, 21),
        ("21.0.2", 0, 21),
        ("1.8.0_392", 0, 8),
        ("23-ea", 0, 23),
        # A stub, and one that fails whatever it prints.
        (None, 1, None),
        ("17.0.1", 1, None),
    ],
)
def test_probe_reads_the_major_version(tmp_path, version, exit_code, major):
    found = probe(make_java(tmp_path, version, exit_code=exit_code))
    assert (found and found.major) == major


@pytest.mark.parametrize("line", SPARK_LINES, ids=lambda line: line.minor)
def test_from_seventeen_to_that_of_the_installed_spark_are_accepted(line, monkeypatch):
    monkeypatch.setattr(java_module, "installed_line", lambda: line)
    accepted = [n for n in range(8, 30) if Java(program=Path("/x/bin/java"), major=n).is_accepted]
    assert accepted == list(range(17, line.java_max + 1))


def test_home_is_behind_links(tmp_path):
    link = tmp_path / "java"
    link.symlink_to(make_java(tmp_path / "jdk", "17.0.1"))
    assert (tmp_path / "jdk").resolve() == Java(program=link, major=17).home
    unusable = tmp_path / "no java"
    unusable.write_bytes(b"\x00\x01")
    unusable.chmod(0o755)
    assert probe(unusable) is None


@pytest.mark.parametrize("line", SPARK_LINES, ids=lambda line: line.minor)
def test_the_list_of_jars_is_one_of_the_installed_spark(line, monkeypatch, capsysbinary):
    """The image's build writes it to a file."""
    monkeypatch.setattr(spark_versions, "installed_line", lambda: line)
    monkeypatch.delitem(sys.modules, "tidegate.local_stack.parts.jvm_parts", raising=False)
    runpy.run_module("tidegate.local_stack.parts.jvm_parts", run_name="__main__")
    found = ElementTree.fromstring(capsysbinary.readouterr().out).iter("dependency")
    jars = {one.get("name"): one.get("rev") for one in found}
    assert jars[f"delta-spark_{line.minor}_2.13"] == DELTA
    assert jars["kafka-clients"] == line.kafka_clients
    assert jars.get(f"iceberg-spark-runtime-{line.minor}_2.13", "") == line.iceberg
    assert not [jar for jar in jars.values() if "$" in jar]


def test_java_home_comes_before_path_and_path_before_usual_places(tmp_path):
    first, second, third = (make_java(tmp_path / name, "17.0.1") for name in "abc")
    (tmp_path / "linked").symlink_to(second.parent)
    path = os.pathsep.join([str(tmp_path / "linked"), str(second.parent)])
    environ = {"JAVA_HOME": str(tmp_path / "a"), "PATH": path}
    found = list(candidates(environ, places=[str(tmp_path / "c*" / "bin" / "java")]))
    # One real file is tried once.
    assert found == [first, tmp_path / "linked" / "java", third]
    for home, expected in ((str(tmp_path), [third]), ("", [])):
        assert list(candidates({"HOME": home}, places=["~/c/bin/java"])) == expected


def test_a_stub_and_an_old_one_do_not_hide_a_good_one(tmp_path):
    make_java(tmp_path / "stub", None, exit_code=1)
    make_java(tmp_path / "old", "11.0.2")
    good = make_java(tmp_path / "good", "21.0.1")
    environ = {"JAVA_HOME": str(tmp_path / "old"), "PATH": str(tmp_path / "stub" / "bin")}
    found = find_java(environ, places=[str(tmp_path / "good/bin/java")])
    assert good == found.program


def test_missing_says_what_to_type_and_unsupported_what_was_found(tmp_path):
    make_java(tmp_path / "stub", None, exit_code=1)
    make_java(tmp_path / "new", "99.0.1")
    with pytest.raises(JavaMissingError) as missing:
        find_java({"PATH": str(tmp_path / "stub" / "bin")}, places=())
    assert f"17 to {java_max()}" in str(missing.value)
    assert "JAVA_HOME" in str(missing.value)
    with pytest.raises(JavaUnsupportedError, match="is Java 99") as unsupported:
        find_java({"JAVA_HOME": str(tmp_path / "new")}, places=())
    assert missing.value.exit_code == unsupported.value.exit_code == 2


def test_a_java_home_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(JavaMissingError) as caught:
        require_java_home({"JAVA_HOME": str(tmp_path / "gone")})
    text = f"JAVA_HOME is {tmp_path}/gone, and {tmp_path}/gone/bin/java does not exist"
    assert text in str(caught.value)
    assert 2 == caught.value.exit_code
    make_java(tmp_path / "a", "17.0.1")
    require_java_home({"JAVA_HOME": str(tmp_path / "a")})
    require_java_home({})


@pytest.mark.parametrize(
    ("tool", "command"),
    [
        ("brew", "brew install openjdk@17"),
        ("apt-get", "sudo apt-get install openjdk-17-jre-headless"),
        ("dnf", "sudo dnf install java-17-openjdk-headless"),
    ],
)
def test_the_hint_fits_the_machine(tmp_path, tool, command):
    write_program(tmp_path / tool, "")
    assert command in install_hint({"PATH": str(tmp_path)})


IVY = """
echo "$@" >> "{calls}"
cp ivy.xml "{calls}.xml"
echo "	found org.example#sample;1.0 in public"
echo "downloading sample-1.0.jar ..."
mkdir -p broker spark registry content iceberg
echo broker > broker/kafka_2.13-4.1.1.jar
echo spark > spark/delta.jar
echo iceberg > iceberg/runtime.jar
echo runner > content/registry-app-runner.jar
tar czf registry/registry-app-all.tar.gz -C content registry-app-runner.jar
rm -r content
echo "	[SUCCESSFUL ] org.example#sample;1.0!sample.jar (1ms)"
"""

BROKEN_IVY = """
echo "	:: UNRESOLVED DEPENDENCIES ::"
echo "	:: org.example#sample;1.0: not found"
exit 3
"""


class Fetching:
    """Fetches the parts with a script in place of Java."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.cache, self.log = folder, folder / "cache", folder / "calls"
        self.replace_program(IVY.format(calls=self.log))

    def replace_program(self, script: str) -> None:
        """Not in `fetch`: a program that another thread runs cannot be written."""
        self.program = write_program(self.folder / "java", script)

    def fetch(self, **more: Any) -> JvmParts:
        java = Java(program=self.program, major=17)
        return fetch_jvm_parts(java, cache=self.cache, **more)

    @property
    def fetched(self) -> JvmParts | None:
        return fetched_jvm_parts(self.cache)

    @property
    def calls(self) -> list[list[str]]:
        return [line.split() for line in self.log.read_text().splitlines()]


@pytest.fixture
def fetching(tmp_path: Path) -> Fetching:
    return Fetching(tmp_path)


def test_a_fetched_set_is_whole_and_fetched_once(fetching: Fetching):
    lines: list[str] = []
    assert fetching.fetched is None
    parts = fetching.fetch(report=lines.append)
    assert parts == fetching.fetched == fetching.fetch()
    (words,) = fetching.calls
    assert words[words.index("-retrieve") + 1].endswith(f".part/{jvm_parts.RETRIEVE_PATTERN}")
    assert words[words.index("-cache") + 1] == str(parts.root.parent / "ivy")
    assert "-settings" not in words
    assert Path(f"{fetching.log}.xml").read_bytes() == jvm_parts._ivy_xml()
    assert lines == [
        "resolving the JVM parts",
        "1 modules found, the latest org.example#sample;1.0",
        "0 files fetched, now sample-1.0.jar",
        "1 files fetched",
        "unpacking the schema registry",
    ]
    assert str(parts.root / "broker" / "*") == parts.broker_class_path
    assert ["delta.jar"] == [jar.name for jar in parts.spark_jars]
    assert ["runtime.jar"] == [jar.name for jar in parts.iceberg_jars]
    assert "runner\n" == parts.registry_jar.read_text()
    left = {path.name for path in parts.root.parent.iterdir()}
    assert {parts.root.name, f"{parts.root.name}.lock"} == left
    stamp = parts.root / "stamp.json"
    jars = {"broker/kafka_2.13-4.1.1.jar", "iceberg/runtime.jar", "spark/delta.jar"}
    assert set(json.loads(stamp.read_text())) == jars | {"registry/registry-app-runner.jar"}
    assert {str(path.relative_to(parts.root)) for path in parts.root.rglob("*.*")} == {
        *json.loads(stamp.read_text()), "stamp.json"
    }  # fmt: skip
    stamp.write_text("{")
    assert fetching.fetched is None


def test_a_python_without_filters_unpacks_the_registry_too(
    fetching: Fetching, monkeypatch: pytest.MonkeyPatch
):
    extractall = tarfile.TarFile.extractall

    def of_python_3_11_2(
        self: tarfile.TarFile, path: Path, members: Any = None, *, numeric_owner: bool = False
    ) -> None:
        extractall(self, path, members, numeric_owner=numeric_owner)

    monkeypatch.delattr(tarfile, "data_filter", raising=False)
    monkeypatch.setattr(tarfile.TarFile, "extractall", of_python_3_11_2)
    assert fetching.fetch().registry_jar.read_text() == "runner\n"


def test_the_operators_own_settings_are_handed_to_ivy(fetching: Fetching, tmp_path: Path):
    mirror = str(tmp_path / "mirror.xml")
    fetching.fetch(environ={"PATH": "/usr/bin:/bin", "TIDEGATE_IVY_SETTINGS": mirror})
    (words,) = fetching.calls
    assert words[words.index("-settings") + 1] == mirror


@pytest.mark.parametrize("damage", ["missing", "short", "foreign"])
def test_a_damaged_set_is_fetched_again(fetching: Fetching, damage: str):
    jar = fetching.fetch().root / "spark" / "delta.jar"
    match damage:
        case "missing":
            jar.unlink()
        case "short":
            jar.write_text("")
        case "foreign":
            jar.with_name("other.jar").write_text("x")
    assert fetching.fetched is None
    fetching.fetch()
    assert len(fetching.calls) == 2
    assert jar.read_text() == "spark\n"


def test_two_runs_at_once_fetch_once(fetching: Fetching):
    runs = [threading.Thread(target=fetching.fetch) for _ in range(3)]
    for run in runs:
        run.start()
    for run in runs:
        run.join(30)
    assert len(fetching.calls) == 1
    assert fetching.fetched is not None


@pytest.mark.parametrize(
    ("script", "text", "hint"),
    [
        (BROKEN_IVY, r"JVM parts failed: .*sample;1\.0: not found", "TIDEGATE_IVY_SETTINGS"),
        ("mkdir -p broker spark registry\n", "archive was not fetched", "ivysettings.xml"),
    ],
)
def test_a_failure_says_why_and_publishes_nothing(fetching: Fetching, script, text, hint):
    fetching.replace_program(script)
    with pytest.raises(FetchError, match=text) as caught:
        fetching.fetch()
    assert hint in caught.value.hint
    assert caught.value.fields.get("exit_code_of_ivy") == (3 if script is BROKEN_IVY else None)
    assert fetching.fetched is None


def test_another_list_of_parts_is_another_folder(fetching: Fetching, monkeypatch):
    first = fetching.fetch().root
    monkeypatch.setattr(jvm_parts, "_ivy_xml", lambda: b"<ivy-module/>")
    assert fetching.fetched is None
    assert first != fetching.fetch().root


def test_the_cache_follows_the_environment():
    assert Path("/x/tidegate") == cache_dir({"XDG_CACHE_HOME": "/x", "HOME": "/home/me"})
    assert Path("/home/me/.cache/tidegate") == cache_dir({"HOME": "/home/me"})
    assert cache_dir({"HOME": ""}).is_absolute()


def test_ivy_comes_with_pyspark(monkeypatch):
    pytest.importorskip("pyspark")
    assert jvm_parts.find_ivy_jar().name.startswith("ivy-")
    monkeypatch.setattr(jvm_parts.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(FetchError, match=r"pip install 'tidegate\[local\]'"):
        jvm_parts.find_ivy_jar()


@pytest.fixture
def archives(tmp_path: Path) -> ClassArchives:
    (tmp_path / "spark.jsa").write_bytes(b"classes")
    return ClassArchives(tmp_path)


@pytest.mark.parametrize("stamp", [None, "", "[]", '{"key": "17", "spark.jsa"'])
def test_an_archive_without_a_whole_stamp_is_not_used(archives: ClassArchives, stamp: str | None):
    if stamp is not None:
        (archives.folder / "stamp.json").write_text(stamp)
    assert archives.options("spark") == ()
    assert not archives.exist
    assert not archives.are_of("17 /jars")


def test_a_program_starts_from_its_whole_archive(archives: ClassArchives):
    archives.seal("17 /jars")
    shared = f"-XX:SharedArchiveFile={archives.folder}/spark.jsa"
    assert archives.options("spark") == (shared, *SILENT)
    assert archives.options("registry") == ()
    assert archives.exist
    assert archives.are_of("17 /jars")
    assert not archives.are_of("21 /jars")
    # Java does not ignore one that was cut short: it dies of SIGBUS.
    (archives.folder / "spark.jsa").write_bytes(b"clas")
    assert archives.options("spark") == ()
    # That none could be made is known.
    (archives.folder / "spark.jsa").unlink()
    archives.seal("17 /jars")
    assert archives.are_of("17 /jars")
    assert archives.options("spark") == ()


def test_they_go_with_the_packages_of_their_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    assert class_archives().folder == tmp_path / "venv" / "class-archives"
    monkeypatch.setattr(sys, "prefix", "/usr")
    assert class_archives().folder == tmp_path / "cache" / "tidegate" / "class-archives"
    assert class_archives(tmp_path / ".venv").folder == tmp_path / ".venv" / "class-archives"


@dataclass
class Part:
    """A broker or registry that writes the archives its options name."""

    archives: tuple[str, ...]
    exit_code: int
    classes: Any
    is_stopped: bool = False

    def start(self) -> None:
        for name in self.archives:
            (option, *_) = self.classes.options(name)
            Path(option.removeprefix("-XX:ArchiveClassesAtExit=")).write_bytes(b"classes")

    def stop(self) -> None:
        self.is_stopped = True

    @property
    def process(self) -> SimpleNamespace:
        return SimpleNamespace(exit_code=self.exit_code, spec=SimpleNamespace(name="a part"))


class Machine:
    """How each program ends."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.archives = ClassArchives(folder / "class-archives")
        modules = folder / "java-17" / "lib" / "modules"
        modules.parent.mkdir(parents=True)
        modules.write_bytes(b"17.0.1")
        self.modules = modules
        self.java = Java(program=folder / "java-17" / "bin" / "java", major=17)
        self.parts = JvmParts(folder / "parts")
        self.made: list[Part] = []
        self.kafka = self.registry = 143
        self.spark = 0
        monkeypatch.setattr(class_recording_module, "class_archives", lambda: self.archives)
        monkeypatch.setattr(
            class_recording_module,
            "KafkaBroker",
            lambda **given: self._part((FORMATTER, BROKER), self.kafka, given),
        )
        monkeypatch.setattr(
            class_recording_module,
            "SchemaRegistry",
            lambda **given: self._part((REGISTRY,), self.registry, given),
        )
        monkeypatch.setattr(class_recording_module.subprocess, "run", self._run_spark)

    def make(self) -> list[str]:
        return make_class_archives(self.java, self.parts)

    @property
    def is_made(self) -> bool:
        return are_class_archives_made(self.java, self.parts)

    @property
    def names(self) -> list[str]:
        return sorted(path.stem for path in self.archives.folder.glob("*.jsa"))

    def _part(self, archives: tuple[str, ...], exit_code: int, given: dict[str, Any]) -> Part:
        part = Part(archives, exit_code, given["classes"])
        self.made.append(part)
        return part

    def _run_spark(self, command: list[str], **_: Any) -> SimpleNamespace:
        option = next(word for word in command[-1].split() if "ArchiveClassesAtExit" in word)
        Path(option.partition("=")[2]).write_bytes(b"classes")
        return SimpleNamespace(returncode=self.spark, stderr="no space left")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_each_program_is_recorded_once_and_again_for_another_java(machine: Machine):
    for version, made in ((b"17.0.1", 2), (b"17.0.16", 4)):
        machine.modules.write_bytes(version)
        assert not machine.is_made
        assert machine.make() == []
        assert machine.is_made
        assert machine.names == [BROKER, FORMATTER, REGISTRY, "spark"]
        assert all(machine.archives.options(name) for name in machine.names)
        assert all(part.is_stopped for part in machine.made)
        assert machine.make() == []
        assert len(machine.made) == made


@pytest.mark.parametrize(
    ("program", "exit_code", "fault", "left"),
    [
        ("kafka", 137, "Kafka: a part ended with 137", [REGISTRY, "spark"]),
        ("spark", 1, "Spark: Spark ended with 1: no space left", [BROKER, FORMATTER, REGISTRY]),
    ],
)
def test_what_a_failed_program_leaves_is_not_used(
    machine: Machine, program: str, exit_code: int, fault: str, left: list[str]
):
    setattr(machine, program, exit_code)
    assert machine.make() == [fault]
    assert machine.names == left
    # It is not tried again at each start.
    assert machine.is_made


def test_what_stands_is_replaced_when_all_is_recorded(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
):
    machine.make()
    machine.modules.write_bytes(b"17.0.16")

    def interrupted(**_: Any) -> Part:
        raise KeyboardInterrupt

    monkeypatch.setattr(class_recording_module, "SchemaRegistry", interrupted)
    with pytest.raises(KeyboardInterrupt):
        machine.make()

    assert machine.names == [BROKER, FORMATTER, REGISTRY, "spark"]
    assert all(machine.archives.options(name) for name in machine.names)


def test_a_part_that_does_not_start_is_a_fault_and_no_error(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
):
    def broken(_: Part) -> None:
        raise PartFailedError("no port")

    monkeypatch.setattr(Part, "start", broken)

    assert machine.make() == ["Kafka: no port", "the schema registry: no port"]
    assert machine.names == ["spark"]


@pytest.mark.parametrize("exit_code", [0, 1])
def test_java_has_ended_when_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exit_code: int
):
    session, asked = MagicMock(), {}
    java = session.sparkContext._gateway.proc
    java.wait.return_value = exit_code

    def local_session(**settings: Any) -> MagicMock:
        asked.update(settings)
        return session

    monkeypatch.setattr(class_recording_module, "local_session", local_session)
    steps = MagicMock()
    for name, step in (("work", session.sql), ("stop", session.stop), ("wait", java.wait)):
        steps.attach_mock(step, name)
    steps.attach_mock(java.stdin.close, "end")

    ended = class_recording_module.main(
        ["--jars", "/a.jar", "--folder", str(tmp_path), "--java-options=-Xmx1g"]
    )

    assert ended == exit_code
    assert SimpleNamespace(**asked) == SimpleNamespace(
        master="local[2]",
        packages="",
        jars="/a.jar",
        app_name="tidegate-start",
        java_options="-Xmx1g",
    )
    names = [name for name, *_ in steps.mock_calls if name in {"work", "stop", "end", "wait"}]
    assert names == ["work", "work", "stop", "end", "wait"]
