"""The archives are made whole or not at all; the programs themselves have an integration test."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tidegate.local_stack.errors import PartFailedError
from tidegate.local_stack.parts import class_recording as module
from tidegate.local_stack.parts.class_archives import ClassArchives
from tidegate.local_stack.parts.class_recording import (
    are_class_archives_made,
    make_class_archives,
)
from tidegate.local_stack.parts.java import Java
from tidegate.local_stack.parts.jvm_parts import JvmParts
from tidegate.local_stack.parts.kafka_broker import BROKER, FORMATTER
from tidegate.local_stack.parts.schema_registry import REGISTRY

_KILLED, _TERMINATED = 137, 143


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
        self.kafka = self.registry = _TERMINATED
        self.spark = 0
        monkeypatch.setattr(module, "class_archives", lambda: self.archives)
        monkeypatch.setattr(
            module,
            "KafkaBroker",
            lambda **given: self._part((FORMATTER, BROKER), self.kafka, given),
        )
        monkeypatch.setattr(
            module, "SchemaRegistry", lambda **given: self._part((REGISTRY,), self.registry, given)
        )
        monkeypatch.setattr(module.subprocess, "run", self._run_spark)

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


def test_each_program_is_recorded_once(machine: Machine):
    assert not machine.is_made

    assert machine.make() == []

    assert machine.is_made
    assert machine.names == [BROKER, FORMATTER, REGISTRY, "spark"]
    assert all(machine.archives.options(name) for name in machine.names)
    assert all(part.is_stopped for part in machine.made)
    assert machine.make() == []
    assert len(machine.made) == 2


def test_another_java_is_recorded_again(machine: Machine):
    machine.make()
    machine.modules.write_bytes(b"17.0.16")

    assert not machine.is_made
    machine.make()
    assert machine.is_made
    assert len(machine.made) == 4


def test_what_a_killed_program_leaves_is_not_used(machine: Machine):
    machine.kafka = _KILLED

    (fault,) = machine.make()

    assert fault == "Kafka: a part ended with 137"
    assert machine.names == [REGISTRY, "spark"]
    # It is not tried again at each start.
    assert machine.is_made


def test_a_session_that_fails_leaves_no_archive(machine: Machine):
    machine.spark = 1

    (fault,) = machine.make()

    assert fault == "Spark: Spark ended with 1: no space left"
    assert machine.names == [BROKER, FORMATTER, REGISTRY]


def test_what_stands_is_replaced_when_all_is_recorded(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
):
    machine.make()
    machine.modules.write_bytes(b"17.0.16")

    def interrupted(**_: Any) -> Part:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "SchemaRegistry", interrupted)
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
