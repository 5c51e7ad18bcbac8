"""A program's process: command line, extras, Java, logs, memory, health, metrics and status."""

from __future__ import annotations

import gc
import io
import json
import re
import socket
import struct
import subprocess
import sys
import threading
import urllib.error
import urllib.request
import weakref
from contextlib import ExitStack
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
import structlog
from typer.testing import CliRunner

import tidegate
from tidegate.program import memory
from tidegate.program.calls import CallHangs, call_bounded
from tidegate.program.command_line import new_app, run_program
from tidegate.program.extras import Extra
from tidegate.program.java import java_max, require_java
from tidegate.program.logs import start_log, start_log_of_run
from tidegate.program.memory import collect_rarely, return_freed_memory
from tidegate.program.status_server import Health, Metric, Metrics, StatusServer, serve_status
from tidegate.schemas.errors import ConfigError, InvariantViolation, SchemaError, UnreachableError


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


def test_an_unexpected_error_keeps_its_traceback_and_an_end_without_one_is_quiet(capsys):
    def app():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_program(app)
    run_program(lambda: None)
    assert capsys.readouterr().err == ""


def test_version_and_help_need_no_extra_and_a_command_does():
    kettle = new_app(description="Boils water.", extra=Extra("kettle", ("no_such_module",)))

    @kettle.command()
    def boil():
        raise AssertionError

    @kettle.command()
    def pour():
        raise AssertionError

    version, shown, ran = (
        CliRunner().invoke(kettle, [word]) for word in ("--version", "--help", "boil")
    )
    assert (version.exit_code, version.stdout) == (0, f"tidegate {tidegate.__version__}\n")
    assert shown.exit_code == 0
    assert "Boils water." in shown.stdout
    assert "--version" in shown.stdout
    assert isinstance(ran.exception, ConfigError)
    assert "tidegate[kettle]" in str(ran.exception)


@pytest.mark.parametrize("module", ["no_such_module", "no_such_package.module"])
def test_a_missing_extra_says_what_to_type_and_an_installed_one_is_not_loaded(module):
    before = set(sys.modules)
    Extra("x", ("json", "this")).require()
    assert "this" not in set(sys.modules) - before
    with pytest.raises(ConfigError) as caught:
        Extra("local", ("json", module)).require()
    assert str(caught.value) == f'{module}: not installed. Type: pip install "tidegate[local]"'
    assert caught.value.exit_code == 2


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


def test_java_home_wins_over_the_path_as_it_does_for_spark(java):
    home, path, other = java("17.0.1"), java("99", "path"), java("21", "other")
    assert require_java({"PATH": str(other.parent)}).program == other
    environ = {"JAVA_HOME": str(home.parents[1]), "PATH": str(path.parent)}
    assert require_java(environ).program == home
    environ = {"JAVA_HOME": str(path.parents[1]), "PATH": str(home.parent)}
    assert f"{path} is Java 99" in refused(**environ)


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("1.8.0_392", "is Java 8"),
        ("11.0.2", "is Java 11"),
        ("99", "is Java 99"),
        (None, "bin/java does not run"),  # a stub that only tells where to get Java
    ],
)
def test_a_java_that_spark_does_not_run_on_is_named(java, version, text):
    assert text in refused(PATH=str(java(version).parent))


def test_without_java_the_line_says_what_to_install(tmp_path):
    error_text = refused(PATH=str(tmp_path))
    assert error_text.startswith(f"Spark needs Java 17 to {java_max()}: no java is on the path")
    assert "JAVA_HOME" in error_text
    assert f"{tmp_path}/bin/java does not run (JAVA_HOME" in refused(JAVA_HOME=str(tmp_path))


def log_settings(log_format="", log_level="info"):
    return SimpleNamespace(log_format=log_format, log_level=log_level)


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def _log_of_this_process(monkeypatch):
    """Give the process its log and hooks back: they hold captured streams, which are closed."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    yield
    structlog.reset_defaults()


def write_lines():
    log = structlog.get_logger("x")
    log.debug("small")
    log.info("middle", slots=(1, 2))
    secret = "hush"
    try:
        int(secret + "!")
    except ValueError:
        log.exception("great", topic="a")


@pytest.mark.parametrize(
    ("level", "events"),
    [
        ("debug", ["small", "middle", "great"]),
        ("info", ["middle", "great"]),
        ("warning", ["great"]),
        ("error", ["great"]),
    ],
)
def test_log_lines_are_json_and_lesser_ones_are_left_out(capsys, level, events):
    start_log(log_settings(log_level=level))
    write_lines()
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = {line["event"]: line for line in map(json.loads, printed.err.splitlines())}
    assert list(lines) == events
    assert "ValueError: invalid" in lines["great"]["exception"]
    assert lines["great"]["timestamp"].endswith("Z")
    if "middle" in lines:
        assert (lines["middle"]["level"], lines["middle"]["slots"]) == ("info", [1, 2])


def test_cloud_logging_finds_severity_message_time_and_stack_trace(capsys):
    start_log(log_settings("gcp", "debug"))
    write_lines()
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["severity"], line["message"]) for line in lines] == [
        ("DEBUG", "small"), ("INFO", "middle"), ("ERROR", "great"),
    ]  # fmt: skip
    assert {name for line in lines for name in line} == {
        "severity", "message", "time", "slots", "topic", "stack_trace",
    }  # fmt: skip
    assert all(datetime.fromisoformat(line["time"]).tzinfo == UTC for line in lines)
    # What Error Reporting recognises as a traceback of Python.
    trace = lines[2]["stack_trace"]
    assert trace.startswith("Traceback (most recent call last):\n  File ")
    assert trace.splitlines()[-1].startswith("ValueError: invalid literal")


@pytest.mark.parametrize(
    ("log_format", "stream", "is_for_people"),
    [
        ("", Terminal, True), ("", io.StringIO, False), ("json", Terminal, False),
        ("gcp", Terminal, False), ("console", io.StringIO, True), ("console", Terminal, True),
    ],
)  # fmt: skip
def test_lines_for_people_are_the_default_on_a_terminal_only(
    monkeypatch, log_format, stream, is_for_people
):
    monkeypatch.delenv("NO_COLOR", raising=False)
    target = stream()
    start_log(log_settings(log_format), target)
    write_lines()
    text = target.getvalue()
    assert text.startswith("{") is not is_for_people
    if is_for_people:
        assert ("\x1b[" in text) == (stream is Terminal)
        plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
        assert re.search(r"\[info +\] middle +\S* *slots=\(1, 2\)\n", plain)
        assert "ValueError: invalid literal" in plain
        # Local variables may hold secrets.
        assert "secret = " not in plain.replace("int(secret", "")


def test_colours_can_be_turned_off(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    target = Terminal()
    start_log(log_settings(), target)
    write_lines()
    assert "\x1b[" not in target.getvalue()


UNCAUGHT = """
import sys, threading
from types import SimpleNamespace
from tidegate.program.logs import start_log_of_run

start_log_of_run(SimpleNamespace(log_format=sys.argv[1], log_level="warning"))
def fail():
    raise KeyError("torn")
if sys.argv[2] == "thread":
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
elif sys.argv[2] == "interrupt":
    raise KeyboardInterrupt
else:
    fail()
"""


@pytest.mark.parametrize(
    ("log_format", "where", "trace", "code"),
    [
        ("json", "main", "exception", 1), ("gcp", "main", "stack_trace", 1),
        ("gcp", "thread", "stack_trace", 0), ("console", "main", "", 1),
        ("gcp", "interrupt", "", -2),
    ],
)  # fmt: skip
def test_an_unexpected_error_of_a_run_is_one_line_of_its_log(log_format, where, trace, code):
    command = [sys.executable, "-c", UNCAUGHT, log_format, where]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code
    if trace:
        assert done.stderr == ""
        (line,) = map(json.loads, done.stdout.splitlines())
        assert "unexpected error" in line.values()
        assert line[trace].splitlines()[-1] == "KeyError: 'torn'"
        assert line.get("severity", "CRITICAL") == "CRITICAL"
    else:
        assert done.stdout == ""
        assert "Traceback" in done.stderr


def test_the_log_of_a_run_is_on_standard_output(capsys):
    start_log_of_run(log_settings("console"))
    write_lines()
    printed = capsys.readouterr()
    assert "middle" in printed.out
    assert printed.err == ""


class Node:
    """Refers to itself."""

    def __init__(self):
        self.itself = self


def test_what_exists_at_the_start_is_exempt_and_later_cycles_are_collected():
    thresholds = gc.get_threshold()
    try:
        collect_rarely()
        assert gc.get_freeze_count() > 10_000
        assert gc.get_threshold()[0] > 10_000
        nodes = [Node() for _ in range(1_000)]
        known = [weakref.ref(node) for node in nodes]
        del nodes
        kept = [[] for _ in range(gc.get_threshold()[0] + 1_000)]
        assert len(kept) > 0
        assert not any(ref() for ref in known)
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)


PROGRAM = """
from pathlib import Path
from tidegate.program.memory import return_freed_memory

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


@pytest.mark.skipif(memory._glibc() is None, reason="another allocator than glibc's")
def test_pages_of_freed_blocks_are_returned():
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True
    )
    by_freeing, by_returning = map(float, ran.stdout.split())
    assert by_returning > by_freeing + 20


def test_nothing_is_done_with_another_allocator(monkeypatch):
    called = []
    library = type("Library", (), {"malloc_trim": staticmethod(called.append)})
    for found in (None, library):
        monkeypatch.setattr(memory, "_glibc", lambda found=found: found)
        return_freed_memory()
    assert called == [0]
    monkeypatch.undo()
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda _name: object())
    assert memory._glibc.__wrapped__() is None


def test_a_call_is_waited_for_and_given_up_where_it_does_not_return():
    calls, answer = [], threading.Event()
    call_bounded(lambda: calls.append("made"), within_s=60.0)
    assert calls == ["made"]
    with pytest.raises(ZeroDivisionError):
        call_bounded(lambda: 1 / 0, within_s=60.0)
    try:
        with pytest.raises(CallHangs):
            call_bounded(answer.wait, within_s=0.05)
    finally:
        answer.set()  # no thread is left


def test_a_program_is_alive_while_its_loop_steps_and_ready_when_it_says_so():
    now_s = [100.0]
    health = Health(stalled_after_s=10, clock=lambda: now_s[0])
    assert (health.fault, health.not_ready) == ("", "starting")
    health.set_ready()
    assert health.not_ready == ""
    health.set_not_ready("waiting for topics")
    assert health.not_ready == "waiting for topics"
    health.set_ready()
    now_s[0] += 10
    assert health.fault == health.not_ready == ""
    now_s[0] += 1
    assert health.fault == health.not_ready == "no step for 11 s"
    health.step()
    assert health.fault == health.not_ready == ""


DEFINITIONS = (
    Metric("boiled_total", "counter", "How often", ("pot",)),
    Metric("burnt_total", "counter", "How often it was too much"),
    Metric("heat", "gauge", "How much"),
    Metric("level", "gauge", "How full", ("pot",)),
    Metric("boiling_seconds", "histogram", "How long"),
)


@pytest.fixture
def metrics():
    return Metrics("kettle", DEFINITIONS)


def test_counters_are_added_to_and_gauges_set_or_followed(metrics):
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
    # Every object counts for itself.
    assert Metrics("kettle", DEFINITIONS).registry.get_sample_value("kettle_heat") == 0
    heat = [5.0]
    metrics.follow("heat", lambda: heat[-1])
    assert value("kettle_heat") == 5
    heat.append(6.0)
    assert value("kettle_heat") == 6
    shown = {family.name: family for family in metrics.registry.collect()}
    assert shown["kettle_heat"].documentation == "How much"
    assert shown["kettle_boiled"].type == "counter"
    assert shown["kettle_boiling_seconds"].type == "histogram"
    assert value("tidegate_build_info", {"version": tidegate.__version__}) == 1
    assert value("process_resident_memory_bytes") > 1 << 20


def test_durations_from_a_tenth_of_a_second_to_an_hour_have_buckets(metrics):
    # Clocks of machines differ: a sum that falls would look like a restart.
    for seconds in (-5.0, 0.1, 0.2, 3_600, 3_601):
        metrics.observe("boiling_seconds", seconds)

    def value(suffix, **labels):
        return metrics.registry.get_sample_value(f"kettle_boiling_seconds_{suffix}", labels)

    found = [value("bucket", le=edge) for edge in ("0.1", "0.25", "1800.0", "3600.0", "+Inf")]
    assert found == [2, 3, 3, 4, 5]
    assert (value("count"), value("sum")) == (5, pytest.approx(7_201.3))


@pytest.fixture
def health():
    return Health()


@pytest.fixture
def serve(metrics, health):
    """Start a status server; `get` reads a page of it."""
    with ExitStack() as stack:

        def start(host="127.0.0.1", port=0, **options):
            options = {"registry": metrics.registry, "health": health, **options}
            return stack.enter_context(StatusServer(host, port, **options))

        yield start


def get(port, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def test_pages_are_metrics_json_and_probes_and_no_others_exist(serve, metrics, health):
    """The name of a file in a page may be bytes of any kind."""
    server = serve(pages={"/errors": lambda: '{"text": "a\udcff"}'})
    metrics.set("heat", 12.5)
    status, text = get(server.port, "/metrics")
    assert status == 200
    assert "kettle_heat 12.5" in text
    assert "tidegate_build_info{version=" in text
    status, text = get(server.port, "/errors")
    assert (status, json.loads(text)) == (200, {"text": "a\udcff"})
    assert text.endswith("\n")
    absent = (404, "try /metrics, /errors, /healthz or /readyz\n")
    for path in ("/", "/else", "/metrics/x", "/health"):
        assert get(server.port, path) == absent
    health.set_ready()
    health.set_warning("a\udcff.avro is away")
    assert get(server.port, "/readyz") == (200, "ok, but a\\udcff.avro is away\n")


def test_probes_answer_as_the_loop_says(serve):
    now_s = [0.0]
    health = Health(stalled_after_s=5, clock=lambda: now_s[0])
    port = serve(health=health).port

    def probes():
        return get(port, "/healthz"), get(port, "/readyz")

    assert probes() == ((200, "ok\n"), (503, "starting\n"))
    health.set_ready()
    assert probes() == ((200, "ok\n"), (200, "ok\n"))
    health.set_warning("a kettle is dry")
    assert probes() == ((200, "ok\n"), (200, "ok, but a kettle is dry\n"))
    now_s[0] = 6.0
    assert probes() == ((503, "no step for 6 s\n"), (503, "no step for 6 s\n"))


def test_an_address_that_cannot_be_listened_on_is_named_and_a_closed_server_gives_it_back(serve):
    first = serve()
    with pytest.raises(ConfigError, match=f"metrics_port: port {first.port} is taken"):
        serve(port=first.port)
    first.close()
    serve(port=first.port)
    for host in ("no such host", "192.0.2.1"):
        with pytest.raises(ConfigError, match=f"metrics_host: cannot listen on '{host}'"):
            serve(host=host)


def test_a_client_that_resets_its_connection_is_no_line_in_the_log(serve, capfd):
    server = serve()
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.sendall(b"GET /metrics HTTP/1.1\r\n")
    assert get(server.port, "/healthz")[0] == 200
    assert capfd.readouterr().err == ""


def test_settings_name_the_address_and_without_a_port_nothing_listens(metrics, health):
    silent = SimpleNamespace(metrics_host="no such host", metrics_port=0)
    with serve_status(silent, registry=metrics.registry, health=health):
        pass
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = SimpleNamespace(metrics_host="127.0.0.1", metrics_port=port)
    with serve_status(settings, registry=metrics.registry, health=health):
        assert get(port, "/healthz")[0] == 200
