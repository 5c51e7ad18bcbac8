"""The broker's settings and start, with a script for Java; the real one has an integration test."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tidegate.local_stack.errors import PartFailedError
from tidegate.local_stack.parts.java import Java
from tidegate.local_stack.parts.jvm_parts import JvmParts
from tidegate.local_stack.parts.kafka_broker import KafkaBroker, _new_cluster_id
from tidegate.local_stack.parts.ports import choose_ports

# Formats as StorageTool does; as the broker it ends at once.
SCRIPT = """#!/bin/sh
echo "$@" >> "{calls}"
case "$*" in
    *StorageTool*) mkdir -p "{data}/log" && touch "{data}/log/meta.properties" ;;
    *) echo "cannot bind"; exit 1 ;;
esac
"""


@pytest.fixture
def broker(tmp_path) -> KafkaBroker:
    program = tmp_path / "java"
    program.write_text(SCRIPT.format(calls=tmp_path / "calls", data=tmp_path / "data"))
    program.chmod(0o755)
    ports = choose_ports({"port": 0, "controller_port": 0})
    return KafkaBroker(
        java=Java(program=program, major=17),
        parts=JvmParts(Path("/parts")),
        data_dir=tmp_path / "data",
        cancelled=threading.Event(),
        **ports,
    )


def settings(broker: KafkaBroker) -> dict[str, str]:
    lines = (broker.data_dir / "server.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and line[0] != "#")


def test_a_broker_that_ends_is_reported_with_its_last_words(broker):
    with pytest.raises(PartFailedError, match=r"Kafka broker ended with code 1(.|\n)*cannot bind"):
        broker.start()


@pytest.mark.parametrize(("is_lasting", "count"), [(False, 2), (True, 0)])
def test_only_a_lasting_broker_has_both_compilers_of_java(broker, tmp_path, is_lasting, count):
    broker.is_lasting = is_lasting
    with pytest.raises(PartFailedError):
        broker.start()

    assert (tmp_path / "calls").read_text().count("-XX:TieredStopAtLevel=1") == count


def test_the_data_folder_is_formatted_once(broker, tmp_path):
    for _ in range(2):
        with pytest.raises(PartFailedError):
            broker.start()

    calls = (tmp_path / "calls").read_text()
    assert 1 == calls.count("StorageTool format")
    assert 2 == calls.count("kafka.Kafka ")


def test_it_listens_on_this_machine_only(broker):
    with pytest.raises(PartFailedError):
        broker.start()

    found = settings(broker)
    for name in ("listeners", "advertised.listeners", "controller.quorum.voters"):
        assert "127.0.0.1:" in found[name]
        assert "0.0.0.0" not in found[name]
    assert f"127.0.0.1:{broker.port}" == broker.bootstrap_servers


def test_a_topic_is_never_made_by_mistake(broker):
    with pytest.raises(PartFailedError):
        broker.start()

    assert "false" == settings(broker)["auto.create.topics.enable"]


def test_stopping_what_was_never_started_is_fine(broker):
    broker.stop()
    broker.kill()


def test_a_cluster_id_never_looks_like_an_option():
    ids = {_new_cluster_id() for _ in range(500)}

    assert 500 == len(ids)
    assert not any(text.startswith("-") for text in ids)
    assert {22} == {len(text) for text in ids}


def test_a_patient_broker_outlasts_a_busy_machine(broker):
    broker.session_ms = 60_000
    with pytest.raises(PartFailedError):
        broker.start()

    assert settings(broker)["broker.session.timeout.ms"] == "60000"
