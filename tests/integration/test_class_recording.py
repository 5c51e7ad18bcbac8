"""Java takes classes from the archives that were made, and says nothing where one does not fit."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tidegate.local_stack.parts.class_archives import class_archives
from tidegate.local_stack.parts.class_recording import are_class_archives_made, make_class_archives
from tidegate.local_stack.parts.java import find_java
from tidegate.local_stack.parts.jvm_parts import fetch_jvm_parts
from tidegate.local_stack.parts.kafka_broker import FORMATTER

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def parts():
    java = find_java()
    parts = fetch_jvm_parts(java)
    assert make_class_archives(java, parts) == []
    assert are_class_archives_made(java, parts)
    return parts


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


def test_each_program_has_an_archive(parts):
    for program in ("kafka.Kafka", FORMATTER, "registry", "spark"):
        assert class_archives().options(program), program


def test_classes_come_from_the_archive(parts, tmp_path: Path):
    log, java = tmp_path / "classes", str(find_java().program)
    options = class_archives().options(FORMATTER)
    program = ("-cp", parts.broker_class_path, FORMATTER, "random-uuid")

    said = run(java, *options, f"-Xlog:class+load:file={log}", *program)

    assert len(said.split()) == 1
    archived = [line for line in log.read_text().splitlines() if "(top)" in line]
    assert any("kafka.tools.StorageTool " in line for line in archived)


def test_an_archive_of_another_class_path_is_ignored_in_silence(parts, tmp_path: Path):
    java, options = str(find_java().program), class_archives().options(FORMATTER)
    (tmp_path / "first.jar").write_bytes((parts.registry_jar).read_bytes())
    path = f"{tmp_path / 'first.jar'}:{parts.broker_class_path}"

    said = run(java, *options, "-cp", path, FORMATTER, "random-uuid")

    assert len(said.split()) == 1
