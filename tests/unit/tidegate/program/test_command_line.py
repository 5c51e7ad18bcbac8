"""Command lines: exit codes, one line per error, the version, missing extras."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

import tidegate
from tidegate.program.command_line import new_app, run_program
from tidegate.program.extras import Extra
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
