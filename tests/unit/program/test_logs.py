"""Log lines: for people, as JSON and for Cloud Logging, also of errors that nothing caught."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
import structlog

from tidegate.program.logs import start_log, start_log_of_run


def log_settings(log_format="", log_level="info"):
    return SimpleNamespace(log_format=log_format, log_level=log_level)


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self):
        return True


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
