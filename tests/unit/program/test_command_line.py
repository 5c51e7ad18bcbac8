"""The start and end of a command line: errors as one line, exit codes, the version, extras."""

from __future__ import annotations

import sys

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
    assert str(caught.value) == (
        f'{module}: not installed. Type: pip install "tidegate[local]" '
        '(in a clone of the repository: pip install ".[local]")'
    )
    assert caught.value.exit_code == 2
