"""The parts of the stack: Kafka, the registry, the simulator, ports and files of settings."""

from __future__ import annotations

import socket
import ssl
import stat
import subprocess
import sys
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tidegate.local_stack.config import load_config
from tidegate.local_stack.errors import JavaMissingError, PartFailedError, PortTakenError
from tidegate.local_stack.parts import process as process_module
from tidegate.local_stack.parts import stack as stack_module
from tidegate.local_stack.parts.jvm_parts import JvmParts
from tidegate.local_stack.parts.kafka_broker import KafkaBroker, SecureListener, _new_cluster_id
from tidegate.local_stack.parts.process import HOST, Cancelled, accepts, choose_ports
from tidegate.local_stack.parts.programs import DatabaseName, as_toml, write_settings_file
from tidegate.local_stack.parts.stack import LocalStack, SchemaRegistry, SpannerSimulator
from tidegate.program.java import Java


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

    monkeypatch.setattr(stack_module, "find_java", lambda: None)
    monkeypatch.setattr(stack_module, "fetch_jvm_parts", lambda _java, report: None)
    monkeypatch.setattr(stack_module, "KafkaBroker", make("kafka"))
    monkeypatch.setattr(stack_module, "SchemaRegistry", make("registry"))
    monkeypatch.setattr(stack_module, "SpannerSimulator", make("simulator"))
    return how


def test_all_parts_start_and_stop_and_each_is_reported(parts, story, tmp_path):
    lines: list[str] = []
    with LocalStack(load_config(data_dir=tmp_path), report=lines.append) as stack:
        assert {"kafka up", "registry up", "simulator up"} == set(story)
        assert "at kafka" == stack.bootstrap_servers
        assert "at registry" == stack.registry_url
        assert ("at simulator", "at simulator") == (stack.spanner_address, stack.control_address)
    assert ["simulator down", "registry down", "kafka down"] == story[3:]
    ready = {"Kafka is ready", "schema registry is ready", "Spanner simulator is ready"}
    assert ready <= set(lines)
    story.clear()
    with LocalStack(load_config(data_dir=tmp_path), with_simulator=False) as stack:
        assert ("", "") == (stack.spanner_address, stack.control_address)
    assert not any("simulator" in line for line in story)


def test_one_that_fails_takes_the_others_down(parts, story, tmp_path):
    parts["kafka"] = "waits"
    parts["registry"] = "fails"
    with pytest.raises(PartFailedError, match="registry broke"):
        LocalStack(load_config(data_dir=tmp_path)).__enter__()
    assert {"kafka down", "registry down", "simulator down"} <= set(story)


def test_a_taken_port_and_a_missing_java_are_found_before_anything_starts(
    parts, story, tmp_path, monkeypatch
):
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        with pytest.raises(PortTakenError, match="kafka_port"):
            LocalStack(load_config(data_dir=tmp_path, kafka_port=taken)).__enter__()

    def no_java():
        raise JavaMissingError("no java")

    monkeypatch.setattr(stack_module, "find_java", no_java)
    with pytest.raises(JavaMissingError):
        LocalStack(load_config(data_dir=tmp_path)).__enter__()
    assert [] == story


@pytest.mark.usefixtures("parts")
def test_a_stack_whose_broker_nothing_kills_is_patient(story, tmp_path, monkeypatch):
    found = []

    def make(*, cancelled, **settings):
        found.append((settings["session_ms"], settings["is_lasting"]))
        return Part(story, "kafka", cancelled, "starts")

    monkeypatch.setattr(stack_module, "KafkaBroker", make)
    for options in ({}, {"is_patient": True}, {"is_lasting": True}):
        with LocalStack(load_config(data_dir=tmp_path), **options):
            pass
    assert found == [(3_000, False), (60_000, False), (3_000, True)]


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


@pytest.mark.parametrize(("is_lasting", "count"), [(False, 2), (True, 0)])
def test_only_a_lasting_broker_has_both_compilers_of_java(broker, tmp_path, is_lasting, count):
    broker.is_lasting = is_lasting
    with pytest.raises(PartFailedError, match=r"Kafka broker ended with code 1(.|\n)*cannot bind"):
        broker.start()
    assert (tmp_path / "calls").read_text().count("-XX:TieredStopAtLevel=1") == count


def test_the_data_folder_is_formatted_once_and_settings_are_those_of_this_machine(broker, tmp_path):
    broker.session_ms = 60_000
    for _ in range(2):
        with pytest.raises(PartFailedError):
            broker.start()
    calls = (tmp_path / "calls").read_text()
    assert (calls.count("StorageTool format"), calls.count("kafka.Kafka ")) == (1, 2)
    lines = (broker.data_dir / "server.properties").read_text().splitlines()
    found = dict(line.split("=", 1) for line in lines if "=" in line and line[0] != "#")
    for name in ("listeners", "advertised.listeners", "controller.quorum.voters"):
        assert "127.0.0.1:" in found[name]
        assert "0.0.0.0" not in found[name]
    assert f"127.0.0.1:{broker.port}" == broker.bootstrap_servers
    # A topic is never made by mistake; a patient broker outlasts a busy machine.
    assert found["auto.create.topics.enable"] == "false"
    assert found["broker.session.timeout.ms"] == "60000"


def test_stopping_what_was_never_started_is_fine(broker, tmp_path):
    broker.stop()
    broker.kill()
    make_registry(tmp_path, 81).stop()
    make_simulator(tmp_path).stop()


def test_a_cluster_id_never_looks_like_an_option():
    ids = {_new_cluster_id() for _ in range(500)}
    assert 500 == len(ids)
    assert not any(text.startswith("-") for text in ids)
    assert {22} == {len(text) for text in ids}


def make_registry(tmp_path: Path, port: int) -> SchemaRegistry:
    return SchemaRegistry(
        java=Java(program=Path("/no/java"), major=17),
        parts=JvmParts(tmp_path),
        data_dir=tmp_path / "data",
        port=port,
        cancelled=threading.Event(),
    )


def test_it_is_ready_when_its_subjects_answer_and_no_proxy_is_asked(tmp_path, monkeypatch):
    class Handler(BaseHTTPRequestHandler):
        status = 200

        def do_GET(self):
            self.send_response(self.status if self.path == "/apis/ccompat/v7/subjects" else 404)
            self.end_headers()

        def log_message(self, *_):
            """Say nothing."""

    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        registry = make_registry(tmp_path, server.server_address[1])
        for Handler.status in (200, 404, 503):
            threading.Thread(target=server.handle_request, daemon=True).start()
            assert registry._answers() == (Handler.status == 200)
    assert not registry._answers()
    assert make_registry(tmp_path, 81).url == "http://127.0.0.1:81/apis/ccompat/v7"


def make_simulator(tmp_path, **more) -> SpannerSimulator:
    return SpannerSimulator(
        data_dir=tmp_path, port=0, control_port=0, cancelled=threading.Event(), **more
    )


@pytest.mark.parametrize("said", ["", "hello\n", "{}\n", "[]\n", '{"grpc": "x"}\n'])
def test_it_learns_where_the_simulator_listens(said):
    whole = '{"grpc": "127.0.0.1:11", "control": "127.0.0.1:12"}\n'
    assert ("127.0.0.1:11", "127.0.0.1:12") == stack_module._addresses(whole)
    with pytest.raises(PartFailedError, match="instead of its addresses"):
        stack_module._addresses(said)


CALL = "from tidegate.local_stack.parts.simulator_program import main; main()"
WITHOUT = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "spanner_simulator":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Hidden())
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_it_is_the_simulators_own_program_or_says_what_to_install():
    done = run(CALL)
    assert 0 == done.returncode, done.stderr
    assert "SPANNER_EMULATOR_HOST" in done.stdout
    done = run(WITHOUT + CALL)
    assert 2 == done.returncode
    text = 'The simulator is not installed. Install it with: pip install "tidegate[local]"'
    assert [text] == done.stderr.splitlines()


@pytest.fixture
def listener():
    with socket.create_server((HOST, 0)) as server:
        yield server


def test_free_ports_are_different_usable_and_below_those_of_connections():
    ports = choose_ports({f"p{number}": 0 for number in range(20)})
    assert 20 == len(set(ports.values()))
    with socket.create_server((HOST, ports["p0"])):
        assert accepts(ports["p0"])
    assert not [port for port in ports.values() if 32_768 <= port <= 60_999]
    assert not accepts(ports["p1"])


def test_where_no_such_port_is_free_the_system_chooses(listener, monkeypatch):
    monkeypatch.setattr(process_module, "_LISTENING", [listener.getsockname()[1]])
    assert choose_ports({"x": 0})["x"] != listener.getsockname()[1]


def test_a_port_that_was_asked_for_is_kept_or_taken(listener):
    wanted = choose_ports({"x": 0})["x"]
    assert wanted == choose_ports({"other": 0, "free": wanted})["free"]
    taken = listener.getsockname()[1]
    with pytest.raises(PortTakenError, match=f"kafka_port {taken}") as caught:
        choose_ports({"registry_port": 0, "kafka_port": taken})
    assert 2 == caught.value.exit_code
    with pytest.raises(PortTakenError):
        choose_ports({"a": wanted, "b": wanted})


def test_keys_and_password_are_kept_for_the_next_start_and_for_their_owner(tmp_path):
    """A client that trusts the authority is served in tests/integration/test_login.py."""
    secure = SecureListener(9093, tmp_path / "secure")
    settings, options = secure.settings(), secure.client_options()
    kept = {path.name: path.read_bytes() for path in secure.folder.iterdir()}
    again = SecureListener(9093, secure.folder)
    assert (again.settings(), again.client_options()) == (settings, options)
    assert {path.name: path.read_bytes() for path in secure.folder.iterdir()} == kept
    assert str(secure.folder / "broker.pem") in settings
    assert options["sasl.password"] not in settings
    context = ssl.create_default_context(cafile=options["ssl.ca.location"])
    assert context.get_ca_certs()
    for name in ("password", "broker.pem"):
        assert (secure.folder / name).stat().st_mode & 0o077 == 0


TEXT = 'a "b" \\ \n \x00 \x7f ü 😀 {} = #'


def test_what_is_written_is_read(tmp_path: Path):
    settings = {
        "prefix": TEXT,
        "kafka_options": {"sasl.password": TEXT, TEXT: "", "n": 3, "x": 2.5, "is_on": True},
        "source": {},
    }
    file = tmp_path / "producer.toml"
    for _ in range(2):
        write_settings_file(file, settings)
    assert tomllib.loads(file.read_text(encoding="utf-8")) == settings
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_what_toml_lacks_is_refused():
    with pytest.raises(TypeError, match="NoneType"):
        as_toml({"a": None})


def test_the_path_is_the_full_resource_name():
    name = DatabaseName("127.0.0.1:9010", project="p", instance="i", database="d")
    assert name.path == "projects/p/instances/i/databases/d"
