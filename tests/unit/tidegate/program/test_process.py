"""A program's process: command line, extras, Java, logs, memory, health, metrics and status."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner
import tidegate
from tidegate.program.command_line import new_app, run_program
from tidegate.program.extras import Extra
from tidegate.schemas.errors import ConfigError, InvariantViolation, SchemaError, UnreachableError
import sys
from tidegate.schemas.errors import ConfigError
from tidegate.program.java import require_java
import json
import structlog
from tidegate.program.logs import log_to_stderr
import gc
import weakref
from tidegate.program.garbage import collect_rarely
import subprocess
from tidegate.program import freed_memory
from tidegate.program.freed_memory import return_freed_memory
import threading
from tidegate.program.bounded_call import CallHangs, call_bounded
from tidegate.program.health import Health
from tidegate.program.metrics import Metric, Metrics
import socket
import struct
import urllib.error
import urllib.request
from types import SimpleNamespace
from tidegate.program.status_server import StatusServer, serve_status


# command_line


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ConfigError("no", hint="pip install 'x[local]'"), 2, "error: no. pip install 'x[local]'"),
        (UnreachableError("nobody answers", host="h"), 75, "error: nobody answers (host='h')"),
        (SchemaError("torn " + "x" * 300), 1, "error: torn " + "x" * 300),
        (InvariantViolation("a bug"), 70, "broken invariant: a bug"),
    ],
)
def test_a_known_error_is_one_plain_line_and_its_exit_code(capsys, error, code, line):
    def app():
        raise error

    with pytest.raises(SystemExit) as ended:
        run_program(app)
    assert ended.value.code == code
    printed = capsys.readouterr()
    assert printed.err == line + "\n"
    assert printed.out == ""


def test_what_nobody_expected_keeps_its_traceback():
    def app():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_program(app)


def test_an_end_without_error_is_left_alone(capsys):
    run_program(lambda: None)
    assert capsys.readouterr().err == ""


@pytest.fixture
def kettle():
    app = new_app(description="Boils water.", extra=Extra("kettle", ("no_such_module",)))

    @app.command()
    def boil():
        raise AssertionError

    @app.command()
    def pour():
        raise AssertionError

    return app


def test_the_version_is_printed_whatever_is_installed(kettle):
    result = CliRunner().invoke(kettle, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"tidegate {tidegate.__version__}\n")


def test_help_is_the_programs_own(kettle):
    result = CliRunner().invoke(kettle, ["--help"])
    assert result.exit_code == 0
    assert "Boils water." in result.stdout
    assert "--version" in result.stdout


def test_a_command_whose_extra_is_missing_is_not_run(kettle):
    result = CliRunner().invoke(kettle, ["boil"])
    assert isinstance(result.exception, ConfigError)
    assert "tidegate[kettle]" in str(result.exception)


# extras


def test_an_installed_extra_passes_without_being_loaded():
    before = set(sys.modules)
    Extra("x", ("json", "this")).require()
    assert "this" not in set(sys.modules) - before


@pytest.mark.parametrize("module", ["no_such_module", "no_such_package.module"])
def test_a_missing_extra_says_what_to_type(module):
    with pytest.raises(ConfigError) as caught:
        Extra("local", ("json", module)).require()
    assert str(caught.value) == f'{module}: not installed. Type: pip install "tidegate[local]"'
    assert caught.value.exit_code == 2


# java


@pytest.fixture
def java(tmp_path):
    """Write a `java` that prints what a real one prints; without version a stub."""

    def write(version, folder="home"):
        program = tmp_path / folder / "bin" / "java"
        program.parent.mkdir(parents=True)
        said = f'openjdk version \\"{version}\\"' if version else "No Java runtime present."
        program.write_text(f'#!/bin/sh\necho "{said}" >&2\nexit {0 if version else 1}\n')
        program.chmod(0o755)
        return program

    return write


def refused(**environ):
    with pytest.raises(ConfigError) as caught:
        require_java(environ)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("version", ["17.0.15", "21"])
def test_the_java_on_the_path_is_taken(java, version):
    program = java(version)
    assert require_java({"PATH": str(program.parent)}).program == program


def test_java_home_wins_over_the_path_as_it_does_for_spark(java):
    home, path = java("17.0.1"), java("23", "path")
    environ = {"JAVA_HOME": str(home.parents[1]), "PATH": str(path.parent)}
    assert require_java(environ).program == home
    environ = {"JAVA_HOME": str(path.parents[1]), "PATH": str(home.parent)}
    assert f"{path} is Java 23" in refused(**environ)


def test_without_java_the_line_says_what_to_install(tmp_path):
    error_text = refused(PATH=str(tmp_path))
    assert error_text.startswith("Spark needs Java 17 to 21: no java is on the path")
    assert "JAVA_HOME" in error_text


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2", "23"])
def test_a_version_that_spark_does_not_run_on_is_named(java, version):
    error_text = refused(PATH=str(java(version).parent))
    assert f"is Java {8 if version.startswith('1.8') else int(version[:2])}" in error_text


def test_a_stub_that_only_tells_where_to_get_java_does_not_pass(java):
    assert "bin/java does not run" in refused(PATH=str(java(None).parent))


def test_a_java_home_without_java_is_named(tmp_path):
    assert f"{tmp_path}/bin/java does not run (JAVA_HOME" in refused(JAVA_HOME=str(tmp_path))


# logs


@pytest.fixture
def logged(capsys):
    def lines(level):
        log_to_stderr(level)
        log = structlog.get_logger("x")
        log.debug("small")
        log.info("middle", slots=(1, 2))
        try:
            int("cause")
        except ValueError:
            log.exception("great")
        printed = capsys.readouterr()
        assert printed.out == ""
        return [json.loads(line) for line in printed.err.splitlines()]

    yield lines
    structlog.reset_defaults()  # it holds the captured stderr, which is closed after the test


def test_log_lines_are_json_with_level_and_time(logged):
    middle, great = logged("info")
    assert middle["event"] == "middle"
    assert middle["level"] == "info"
    assert middle["slots"] == [1, 2]
    assert middle["timestamp"].endswith("Z")
    assert "ValueError: invalid" in great["exception"]


@pytest.mark.parametrize(
    ("level", "events"),
    [("debug", ["small", "middle", "great"]), ("warning", ["great"]), ("error", ["great"])],
)
def test_lesser_lines_are_left_out(logged, level, events):
    assert [line["event"] for line in logged(level)] == events


# garbage


@pytest.fixture(autouse=True)
def _restore():
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


class Node:
    """Refers to itself."""

    def __init__(self):
        self.itself = self


def test_what_exists_at_the_start_is_exempt():
    collect_rarely()

    assert gc.get_freeze_count() > 10_000
    assert gc.get_threshold()[0] > 10_000


def test_cycles_made_later_are_collected_without_being_asked():
    collect_rarely()
    nodes = [Node() for _ in range(1_000)]
    known = [weakref.ref(node) for node in nodes]
    del nodes

    kept = [[] for _ in range(gc.get_threshold()[0] + 1_000)]

    assert len(kept) > 0
    assert not any(ref() for ref in known)


# freed_memory


PROGRAM = """
from pathlib import Path
from tidegate.program.freed_memory import return_freed_memory

def resident_mib():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024

blocks = [b"x" * 100_000 for _ in range(1_280)]
kept = blocks[1::2]  # between the others and behind them, so that the heap cannot just end earlier
held = resident_mib()
blocks.clear()
freed = resident_mib()
return_freed_memory()
print(held - freed, held - resident_mib())
"""


@pytest.mark.skipif(freed_memory._glibc() is None, reason="another allocator than glibc's")
def test_pages_of_freed_blocks_are_returned():
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True
    )
    by_freeing, by_returning = map(float, ran.stdout.split())
    assert by_returning > by_freeing + 20


def test_nothing_is_done_with_another_allocator(monkeypatch):
    called = []
    monkeypatch.setattr(freed_memory, "_glibc", lambda: None)
    return_freed_memory()
    library = type("Library", (), {"malloc_trim": staticmethod(called.append)})
    monkeypatch.setattr(freed_memory, "_glibc", lambda: library)
    return_freed_memory()
    assert called == [0]


def test_a_library_without_the_function_is_left_alone(monkeypatch):
    monkeypatch.setattr(freed_memory.ctypes, "CDLL", lambda _name: object())
    assert freed_memory._glibc.__wrapped__() is None


# bounded_call


SOON_S = 0.05
LONG_S = 60.0


@pytest.fixture
def answer():
    """What a call waits for; it is given at the end, so that no thread is left."""
    made = threading.Event()
    yield made
    made.set()


def test_a_call_that_returns_is_waited_for():
    calls = []
    call_bounded(lambda: calls.append("made"), within_s=LONG_S)

    assert calls == ["made"]


def test_what_the_call_raises_is_raised():
    def fail():
        message = "no"
        raise OSError(message)

    with pytest.raises(OSError, match="no"):
        call_bounded(fail, within_s=LONG_S)


def test_a_call_that_does_not_return_is_given_up(answer):
    with pytest.raises(CallHangs):
        call_bounded(answer.wait, within_s=SOON_S)


# health


class Clock:
    def __init__(self):
        self.seconds = 100.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def health(clock):
    return Health(stalled_after_s=10, clock=clock)


def test_it_starts_alive_and_not_ready(health):
    assert health.fault == ""
    assert health.not_ready == "starting"


def test_ready_until_it_waits(health):
    health.set_ready()
    assert health.not_ready == ""
    health.set_not_ready("waiting for topics")
    assert health.not_ready == "waiting for topics"


def test_a_loop_that_stands_still_is_neither_alive_nor_ready(health, clock):
    health.set_ready()
    clock.seconds += 10
    assert health.fault == ""
    clock.seconds += 1
    assert health.fault == health.not_ready == "no step for 11 s"


def test_a_step_makes_it_alive(health, clock):
    health.set_ready()
    clock.seconds += 11
    health.step()
    assert health.fault == health.not_ready == ""


# metrics


DEFINITIONS = (
    Metric("boiled_total", "counter", "How often", ("pot",)),
    Metric("burnt_total", "counter", "How often it was too much"),
    Metric("heat", "gauge", "How much"),
    Metric("level", "gauge", "How full", ("pot",)),
)


@pytest.fixture
def metrics():
    return Metrics("kettle", DEFINITIONS)


def test_counters_are_added_to_and_gauges_set(metrics):
    metrics.add("boiled_total", 3, pot="red")
    metrics.add("boiled_total", pot="red")
    metrics.add("burnt_total")
    metrics.set("heat", 5)
    metrics.set("heat", 4)
    metrics.set("level", 7, pot="red")
    value = metrics.registry.get_sample_value
    assert value("kettle_boiled_total", {"pot": "red"}) == 4
    assert value("kettle_burnt_total") == 1
    assert value("kettle_heat") == 4
    assert value("kettle_level", {"pot": "red"}) == 7


def test_a_gauge_that_is_followed_is_asked_at_each_scrape(metrics):
    heat = [5.0]
    metrics.follow("heat", lambda: heat[-1])
    value = metrics.registry.get_sample_value
    assert value("kettle_heat") == 5
    heat.append(6.0)
    assert value("kettle_heat") == 6


def test_names_and_meanings_are_those_of_the_definitions(metrics):
    shown = {family.name: family for family in metrics.registry.collect()}
    assert shown["kettle_heat"].documentation == "How much"
    assert shown["kettle_boiled"].type == "counter"


def test_every_object_counts_for_itself(metrics):
    metrics.set("heat", 5)
    assert Metrics("kettle", DEFINITIONS).registry.get_sample_value("kettle_heat") == 0


def test_the_build_and_the_process_are_there(metrics):
    value = metrics.registry.get_sample_value
    assert value("tidegate_build_info", {"version": tidegate.__version__}) == 1
    assert value("process_resident_memory_bytes") > 1 << 20


# status_server


@pytest.fixture
def health_of_status_server():
    return Health()


@pytest.fixture
def metrics_of_status_server():
    return Metrics("kettle", [Metric("heat", "gauge", "How much")])


@pytest.fixture
def server(metrics_of_status_server, health_of_status_server):
    with StatusServer("127.0.0.1", 0, registry=metrics_of_status_server.registry, health=health_of_status_server) as running:
        yield running


def get(port, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def test_a_scrape_shows_what_was_measured(server, metrics_of_status_server):
    metrics_of_status_server.set("heat", 12.5)
    status, text = get(server.port, "/metrics")
    assert status == 200
    assert "kettle_heat 12.5" in text
    assert "tidegate_build_info{version=" in text


def test_a_page_of_the_program_is_json(metrics_of_status_server, health_of_status_server):
    pages = {"/errors": lambda: '{"retried": []}'}
    with StatusServer(
        "127.0.0.1", 0, registry=metrics_of_status_server.registry, health=health_of_status_server, pages=pages
    ) as server:
        assert get(server.port, "/errors") == (200, '{"retried": []}\n')
        assert get(server.port, "/else") == (
            404, "try /metrics_of_status_server, /errors, /healthz or /readyz\n",
        )  # fmt: skip


def test_what_has_no_utf_8_is_escaped(metrics_of_status_server, health_of_status_server):
    """The name of a file may be bytes of any kind."""
    health_of_status_server.set_ready()
    health_of_status_server.set_warning("a\udcff.avro is away")
    pages = {"/errors": lambda: json.dumps({"text": "a\udcff"}, ensure_ascii=False)}
    with StatusServer(
        "127.0.0.1", 0, registry=metrics_of_status_server.registry, health=health_of_status_server, pages=pages
    ) as server:
        assert get(server.port, "/readyz") == (200, "ok, but a\\udcff.avro is away\n")
        status, text = get(server.port, "/errors")
    assert (status, json.loads(text)) == (200, {"text": "a\udcff"})


def test_probes_answer_as_the_loop_says(server, health_of_status_server):
    assert get(server.port, "/healthz") == (200, "ok\n")
    assert get(server.port, "/readyz") == (503, "starting\n")
    health_of_status_server.set_ready()
    assert get(server.port, "/readyz") == (200, "ok\n")
    health_of_status_server.set_warning("a kettle is dry")
    assert get(server.port, "/readyz") == (200, "ok, but a kettle is dry\n")
    assert get(server.port, "/healthz") == (200, "ok\n")


def test_a_loop_that_stands_still_fails_both_probes(metrics_of_status_server):
    now = [0.0]
    health_of_status_server = Health(stalled_after_s=5, clock=lambda: now[0])
    health_of_status_server.set_ready()
    with StatusServer("127.0.0.1", 0, registry=metrics_of_status_server.registry, health=health_of_status_server) as server:
        now[0] = 6.0
        assert get(server.port, "/healthz") == (503, "no step for 6 s\n")
        assert get(server.port, "/readyz") == (503, "no step for 6 s\n")


@pytest.mark.parametrize("path", ["/", "/metrics_of_status_server/x", "/favicon.ico", "/health"])
def test_other_paths_do_not_exist(server, path):
    status, text = get(server.port, path)
    assert status == 404
    assert "/metrics" in text


def test_a_port_that_is_taken_is_named(server, metrics_of_status_server, health_of_status_server):
    with pytest.raises(ConfigError, match=f"metrics_port: port {server.port} is taken"):
        StatusServer("127.0.0.1", server.port, registry=metrics_of_status_server.registry, health=health_of_status_server)


@pytest.mark.parametrize("host", ["no such host", "192.0.2.1"])
def test_an_address_of_another_machine_is_named(metrics_of_status_server, health_of_status_server, host):
    with pytest.raises(ConfigError, match=f"metrics_host: cannot listen on '{host}'"):
        StatusServer(host, 0, registry=metrics_of_status_server.registry, health=health_of_status_server)


def test_a_closed_server_gives_its_port_back(metrics_of_status_server, health_of_status_server):
    with StatusServer("127.0.0.1", 0, registry=metrics_of_status_server.registry, health=health_of_status_server) as first:
        port = first.port
    StatusServer("127.0.0.1", port, registry=metrics_of_status_server.registry, health=health_of_status_server).close()


def test_a_client_that_resets_its_connection_is_no_line_in_the_log(server, capfd):
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.sendall(b"GET /metrics_of_status_server HTTP/1.1\r\n")
    assert get(server.port, "/healthz")[0] == 200
    assert capfd.readouterr().err == ""


def test_without_a_port_nothing_listens(metrics_of_status_server, health_of_status_server):
    settings = SimpleNamespace(metrics_host="no such host", metrics_port=0)
    with serve_status(settings, registry=metrics_of_status_server.registry, health=health_of_status_server):
        pass


def test_settings_name_the_address(metrics_of_status_server, health_of_status_server):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = SimpleNamespace(metrics_host="127.0.0.1", metrics_port=port)
    with serve_status(settings, registry=metrics_of_status_server.registry, health=health_of_status_server):
        assert get(port, "/healthz")[0] == 200
