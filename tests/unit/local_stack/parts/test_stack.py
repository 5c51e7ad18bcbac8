"""Starting the parts together: one that fails takes the others down; nothing starts too early."""

from __future__ import annotations

import socket
import threading

import pytest

from tidegate.local_stack.config import load_config
from tidegate.local_stack.errors import JavaMissingError, PartFailedError, PortTakenError
from tidegate.local_stack.parts import stack as module
from tidegate.local_stack.parts.process import Cancelled
from tidegate.local_stack.parts.stack import LocalStack


class Part:
    """A part that starts, waits or fails as the test says, and remembers that it was stopped."""

    def __init__(self, story: list[str], name: str, cancelled: threading.Event, start: str) -> None:
        self.story, self.name, self.cancelled, self.how = story, name, cancelled, start
        self.bootstrap_servers = self.url = self.address = self.control_address = f"at {name}"

    def start(self) -> None:
        if self.how == "fails":
            raise PartFailedError(f"{self.name} broke")
        if self.how == "waits":
            assert self.cancelled.wait(20), "nobody said that it is over"
            raise Cancelled(f"{self.name} was stopped")
        self.story.append(f"{self.name} up")

    def stop(self) -> None:
        self.story.append(f"{self.name} down")


@pytest.fixture
def story() -> list[str]:
    return []


@pytest.fixture
def parts(monkeypatch, story):
    """Replace the real parts; the dictionary says how each one starts."""
    how = {"kafka": "starts", "registry": "starts", "simulator": "starts"}

    def make(name):
        return lambda *, cancelled, **_: Part(story, name, cancelled, how[name])

    monkeypatch.setattr(module, "find_java", lambda: None)
    monkeypatch.setattr(module, "fetch_jvm_parts", lambda _java, report: None)
    monkeypatch.setattr(module, "KafkaBroker", make("kafka"))
    monkeypatch.setattr(module, "SchemaRegistry", make("registry"))
    monkeypatch.setattr(module, "SpannerSimulator", make("simulator"))
    return how


def test_all_parts_start_and_stop(parts, story, tmp_path):
    with LocalStack(load_config(data_dir=tmp_path)) as stack:
        assert {"kafka up", "registry up", "simulator up"} == set(story)
        assert "at kafka" == stack.bootstrap_servers
        assert "at registry" == stack.registry_url
        assert ("at simulator", "at simulator") == (stack.spanner_address, stack.control_address)

    assert ["simulator down", "registry down", "kafka down"] == story[3:]


def test_the_simulator_can_be_left_out(parts, story, tmp_path):
    with LocalStack(load_config(data_dir=tmp_path), with_simulator=False) as stack:
        assert ("", "") == (stack.spanner_address, stack.control_address)

    assert not any("simulator" in line for line in story)


def test_one_that_fails_takes_the_others_down(parts, story, tmp_path):
    parts["kafka"] = "waits"
    parts["registry"] = "fails"

    with pytest.raises(PartFailedError, match="registry broke"):
        LocalStack(load_config(data_dir=tmp_path)).__enter__()
    assert {"kafka down", "registry down", "simulator down"} <= set(story)


def test_each_part_is_reported_when_it_is_ready(parts, tmp_path):
    lines: list[str] = []
    with LocalStack(load_config(data_dir=tmp_path), report=lines.append):
        pass

    assert {"Kafka is ready", "schema registry is ready", "Spanner simulator is ready"} <= set(
        lines
    )


def test_a_taken_port_is_found_before_anything_starts(parts, story, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        with pytest.raises(PortTakenError, match="kafka_port"):
            LocalStack(load_config(data_dir=tmp_path, kafka_port=taken)).__enter__()

    assert [] == story


def test_a_missing_java_is_found_before_anything_starts(parts, story, tmp_path, monkeypatch):
    def no_java():
        raise JavaMissingError("no java")

    monkeypatch.setattr(module, "find_java", no_java)
    with pytest.raises(JavaMissingError):
        LocalStack(load_config(data_dir=tmp_path)).__enter__()

    assert [] == story


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize(("is_patient", "session_ms"), [(False, 3_000), (True, 60_000)])
def test_a_stack_whose_broker_nothing_kills_is_patient(
    story, tmp_path, monkeypatch, is_patient, session_ms
):
    found = []

    def make(*, cancelled, **settings):
        found.append((settings["session_ms"], settings["is_lasting"]))
        return Part(story, "kafka", cancelled, "starts")

    monkeypatch.setattr(module, "KafkaBroker", make)
    with LocalStack(load_config(data_dir=tmp_path), is_patient=is_patient):
        assert found == [(session_ms, False)]
    with LocalStack(load_config(data_dir=tmp_path), is_lasting=True):
        assert found[1:] == [(3_000, True)]
