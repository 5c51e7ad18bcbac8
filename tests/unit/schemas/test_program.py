"""What every program does alike: exit codes, one line per error, JSON lines to standard error."""

from __future__ import annotations

import json

import pytest
import structlog

from tidegate.schemas.errors import ConfigError, InvariantViolation, SchemaError, UnreachableError
from tidegate.schemas.program import log_to_stderr, run_program


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ConfigError("no", hint="pip install 'x[local]'"), 2, "error: no. pip install 'x[local]'"),
        (UnreachableError("nobody answers", host="h"), 2, "error: nobody answers (host='h')"),
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
    told = capsys.readouterr()
    assert told.err == line + "\n"
    assert told.out == ""


def test_what_nobody_expected_keeps_its_traceback():
    def app():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_program(app)


def test_an_end_without_error_is_left_alone(capsys):
    run_program(lambda: None)
    assert capsys.readouterr().err == ""


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
        told = capsys.readouterr()
        assert told.out == ""
        return [json.loads(line) for line in told.err.splitlines()]

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
