"""What workers and consumer are started with, and what a kill leaves to be read."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tidegate.local_stack.parts import programs as module
from tidegate.local_stack.parts.database_name import DatabaseName
from tidegate.local_stack.parts.process import ProcessSpec
from tidegate.local_stack.parts.programs import Program, Programs
from tidegate.local_stack.parts.secure_listener import SecureListener

WORKS = """
import json, sys, time
for step in sys.argv[1:]:
    print(json.dumps({"event": "step", "step": step}), flush=True)
time.sleep(60)
"""


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    command = [sys.executable, "-c", WORKS, "begin", "fence"]
    made = Program(ProcessSpec(name="w1", command=command, log=tmp_path / "w1.log"))
    yield made
    made.stop()


def test_a_kill_reports_the_step_and_a_new_start_begins_again(program: Program):
    program.start()
    until(lambda: program.step == "fence")
    first_pid = program.process.pid

    assert program.kill() == "fence"
    assert not program.process.is_running

    program.start()
    until(lambda: program.step == "fence")
    assert program.log_began > 0
    assert program.process.pid != first_pid


def test_stopping_what_was_never_started_is_nothing(program: Program):
    assert program.stop() is None
    assert not program.has_begun


def make(folder: Path) -> Programs:
    return Programs(
        folder=folder,
        bootstrap_servers="k:1",
        registry_url="http://r:2",
        spanner_address="s:3",
        database=DatabaseName(address="s:3"),
        stream="changes",
        prefix="bank",
        more={"EXTRA": "x"},
    )


def test_a_worker_gets_its_settings_and_none_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TIDEGATE_PRODUCER_SLOTS", "99")
    monkeypatch.setenv("tidegate_consumer_until", "caught-up")
    spec = make(tmp_path).worker("w7", start="2026-01-01T00:00:00Z").spec
    environ = spec.environ or {}

    assert spec.command[-2:] == ["tidegate.producer", "run"]
    assert environ["TIDEGATE_PRODUCER_WORKER"] == "w7"
    assert environ["TIDEGATE_PRODUCER_CHANGE_STREAM"] == "changes"
    assert environ["TIDEGATE_PRODUCER_START"] == "2026-01-01T00:00:00Z"
    assert environ["SPANNER_EMULATOR_HOST"] == "s:3"
    assert environ["EXTRA"] == "x"
    assert "TIDEGATE_PRODUCER_SLOTS" not in environ
    assert "tidegate_consumer_until" not in environ


def test_workers_may_read_another_source(tmp_path: Path):
    made = replace(make(tmp_path), source='{"kind": "datastream", "location": "/files"}')
    environ = made.worker("w1", start="now").spec.environ or {}
    ours = {name for name in environ if name.startswith("TIDEGATE_PRODUCER_")}

    assert environ["TIDEGATE_PRODUCER_SOURCE"] == made.source
    # Names of Spanner are an error beside it.
    assert not ours & {
        f"TIDEGATE_PRODUCER_{name}" for name in ("PROJECT", "INSTANCE", "DATABASE", "CHANGE_STREAM")
    }


def test_the_consumer_gets_java_and_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    class Java:
        home = Path("/java")

    class Parts:
        spark_jars = (Path("/a.jar"), Path("/b.jar"))
        iceberg_jars = (Path("/c.jar"),)

    monkeypatch.setattr(module, "find_java", Java)
    monkeypatch.setattr(module, "fetched_jvm_parts", Parts)
    programs = make(tmp_path)
    environ = programs.consumer().spec.environ or {}

    assert environ["JAVA_HOME"] == "/java"
    assert environ["TIDEGATE_CONSUMER_JARS"] == "/a.jar,/b.jar"
    assert environ["TIDEGATE_CONSUMER_OUTPUT"] == str(programs.output)
    assert environ["TIDEGATE_CONSUMER_CHECKPOINT"] == str(programs.checkpoint)
    more = replace(programs, has_iceberg=True).consumer().spec.environ or {}
    assert more["TIDEGATE_CONSUMER_JARS"] == "/a.jar,/b.jar,/c.jar"


def test_programs_log_in_while_others_look_on_without(tmp_path: Path):
    secure = SecureListener(9093, tmp_path / "secure")
    plain = make(tmp_path)
    made = replace(plain, secure=secure)
    environ = made.worker("w1", start="now").spec.environ or {}

    assert made.bootstrap_servers == plain.bootstrap_servers
    assert environ["TIDEGATE_PRODUCER_BOOTSTRAP_SERVERS"] == "127.0.0.1:9093"
    assert json.loads(environ["TIDEGATE_PRODUCER_KAFKA_OPTIONS"]) == secure.client_options()
