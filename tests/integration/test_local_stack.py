"""The parts of the local stack: they work, go on after a restart, and never outlive us.

And what their start rests on: Java's options and archives of classes, commands that are forked.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from tests.command_server import run_module
from tests.integration.shared_stack import read_bytes, until
from tidegate.local_stack.config import load_config
from tidegate.local_stack.parts.class_archives import class_archives
from tidegate.local_stack.parts.class_recording import are_class_archives_made, make_class_archives
from tidegate.local_stack.parts.installed_java import find_java
from tidegate.local_stack.parts.jvm_parts import fetch_jvm_parts
from tidegate.local_stack.parts.kafka_broker import FORMATTER
from tidegate.local_stack.parts.programs import quick_start
from tidegate.local_stack.parts.stack import LocalStack

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

PATIENCE_S = 60.0

RECORD = '{"type": "record", "name": "Sample", "fields": [{"name": "a", "type": "long"}]}'
WIDER = (
    '{"type": "record", "name": "Sample", "fields": [{"name": "a", "type": "long"},'
    ' {"name": "b", "type": "string"}]}'
)


def publish(stack: LocalStack, topic: str, value: bytes) -> None:
    """In a transaction, so that the transaction coordinator is proved to work on one node."""
    producer = Producer(
        {"bootstrap.servers": stack.bootstrap_servers, "transactional.id": f"writer-{topic}"}
    )
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, value=value)
    producer.commit_transaction(PATIENCE_S)


def test_broker_and_registry_go_on_after_a_crash(tmp_path):
    topic, subject = "sample", "sample-value"
    with LocalStack(load_config(data_dir=tmp_path), with_simulator=False) as stack:
        admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
        admin.list_topics("never", timeout=10)
        assert "never" not in admin.list_topics(timeout=10).topics
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(PATIENCE_S)
        publish(stack, topic, b"before")
        client = SchemaRegistryClient({"url": stack.registry_url})
        number = client.register_schema(subject, Schema(RECORD, "AVRO"))
        client.set_compatibility(subject_name=subject, level="BACKWARD")
        assert number == client.register_schema(subject, Schema(RECORD, "AVRO"))
        assert RECORD.replace(" ", "") == client.get_schema(number).schema_str.replace(" ", "")
        assert not client.test_compatibility(subject, Schema(WIDER, "AVRO"))

        stack.kafka.kill()
        stack.kafka.start()
        stack.registry.stop()
        stack.registry.start()
        publish(stack, topic, b"after")
        content = read_bytes(stack, topic, count=2)
        again = SchemaRegistryClient({"url": stack.registry_url})
        assert number == again.get_latest_version(subject).schema_id
        del admin
    assert [message.value() for message in content] == [b"before", b"after"]


def test_a_parent_that_is_killed_leaves_no_jvm(tmp_path):
    """The parent is another program, killed without a chance to clean up, as a crash would."""
    code = (
        "import time\n"
        "from tidegate.local_stack.config import load_config\n"
        "from tidegate.local_stack.parts.stack import LocalStack\n"
        f"stack = LocalStack(load_config(data_dir={str(tmp_path)!r}), with_simulator=False)\n"
        "stack.start()\n"
        "print(stack.kafka.process.pid, stack.registry.process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as parent:
        pids = [int(word) for word in parent.stdout.readline().split()]
        programs = [psutil.Process(pid) for pid in pids]
        assert ["java", "java"] == [program.name() for program in programs]
        parent.send_signal(signal.SIGKILL)

    until(lambda: not any(program.is_running() for program in programs))


def test_a_parent_that_is_interrupted_stops_in_order(tmp_path):
    code = (
        "import signal, time\n"
        "from tidegate.local_stack.config import load_config\n"
        "from tidegate.local_stack.parts.stack import LocalStack\n"
        # A shell that starts the tests in the background lets its programs ignore it.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"with LocalStack(load_config(data_dir={str(tmp_path)!r}), with_simulator=False):\n"
        "    print('up', flush=True)\n"
        "    time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout.readline() == "up\n"
        programs = psutil.Process(parent.pid).children(recursive=True)
        parent.send_signal(signal.SIGINT)
        parent.wait(PATIENCE_S)

    # Two supervisors and two JVMs; all are gone before their parent is.
    assert len(programs) == 4
    assert not any(program.is_running() for program in programs)
    assert "shut down" in (tmp_path / "kafka" / "kafka.log").read_text()


# ---------------------------------------------------------------- Java


@pytest.fixture(scope="module")
def parts():
    java = find_java()
    parts = fetch_jvm_parts(java)
    assert make_class_archives(java, parts) == []
    assert are_class_archives_made(java, parts)
    return parts


def said_by(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


def test_each_program_has_an_archive(parts):
    for program in ("kafka.Kafka", FORMATTER, "registry", "spark"):
        assert class_archives().options(program), program


def test_classes_come_from_the_archive(parts, tmp_path: Path):
    log, java = tmp_path / "classes", str(find_java().program)
    options = class_archives().options(FORMATTER)
    program = ("-cp", parts.broker_class_path, FORMATTER, "random-uuid")

    said = said_by(java, *options, f"-Xlog:class+load:file={log}", *program)

    assert len(said.split()) == 1
    archived = [line for line in log.read_text().splitlines() if "(top)" in line]
    assert any("kafka.tools.StorageTool " in line for line in archived)


def test_an_archive_of_another_class_path_is_ignored_in_silence(parts, tmp_path: Path):
    java, options = str(find_java().program), class_archives().options(FORMATTER)
    (tmp_path / "first.jar").write_bytes((parts.registry_jar).read_bytes())
    path = f"{tmp_path / 'first.jar'}:{parts.broker_class_path}"

    said = said_by(java, *options, "-cp", path, FORMATTER, "random-uuid")

    assert len(said.split()) == 1


def code_cache(*options: str) -> int:
    command = [str(find_java().program), *options, "-XX:+PrintFlagsFinal", "-version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    match = re.search(r"ReservedCodeCacheSize\s*=\s*(\d+)", done.stdout)
    assert match is not None
    return int(match[1])


def test_there_is_as_much_room_for_compiled_code_as_with_both_compilers():
    assert code_cache("-XX:TieredStopAtLevel=1") < code_cache()

    assert code_cache(*shlex.split(quick_start())) >= code_cache()


# ---------------------------------------------------------------- forked commands

BY_MODULE = {
    "tidegate.producer": [("--version",), ("status", "--no-such-option"), ("check",)],
    "tidegate.spark_consumer": [("--version",), ("status", "--checkpoint", "nowhere")],
}


@pytest.mark.parametrize("module", BY_MODULE)
def test_output_and_exit_code_are_those_of_a_command_that_is_started(module, tmp_path):
    environ = {**os.environ, "COLUMNS": "70"}
    for arguments in BY_MODULE[module]:
        forked = run_module(
            module, *arguments, environ=environ, folder=tmp_path, timeout_s=PATIENCE_S
        )
        started = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            env=environ, cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (forked.returncode, forked.stdout) == (started.returncode, started.stdout)
        assert forked.stderr == started.stderr


def test_settings_of_one_command_are_not_seen_by_the_next(tmp_path):
    def said(**environ):
        done = run_module(
            "tidegate.producer", "check",
            environ={**os.environ, **environ}, folder=tmp_path, timeout_s=PATIENCE_S,
        )  # fmt: skip
        return done.returncode, done.stderr

    without = said()
    assert "surprise" in said(TIDEGATE_PRODUCER_PREFIX="sur prise surprise")[1]
    assert said() == without


def test_one_that_takes_too_long_is_killed_and_the_next_one_runs(tmp_path):
    environ = dict(os.environ)
    with pytest.raises(subprocess.TimeoutExpired):
        run_module("tidegate.producer", "--version", environ=environ, timeout_s=0)
    done = run_module("tidegate.producer", "--version", environ=environ, timeout_s=PATIENCE_S)
    assert done.returncode == 0
