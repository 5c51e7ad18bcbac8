"""The commands of `schemas` print what they found, and fail where something is missing."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from tests.unit.producer.test_cli import flags, run
from tidegate.producer.commands import schemas as schemas_command
from tidegate.producer.commands.schemas import Subject

__all__ = ["run"]


def test_subjects_are_listed(run, monkeypatch):
    found = [Subject("bank.t-key", 2, 7, None), Subject("bank.t-value", 3, 8, "FULL")]
    monkeypatch.setattr(schemas_command, "subjects", lambda _config: found)
    monkeypatch.setenv("COLUMNS", "100")
    code, _, output = run("schemas", "list", *flags())
    assert code == 0
    assert all(text in output for text in ("bank.t-key", "the registry's", "FULL"))
    _, _, output = run("schemas", "list", *flags(), "--json")
    assert json.loads(output) == [asdict(one) for one in found]


@pytest.mark.parametrize(("missing", "code"), [([], 0), (["bank.t-key"], 1)])
def test_a_check_fails_if_something_is_missing(run, monkeypatch, missing, code):
    monkeypatch.setattr(schemas_command, "missing", lambda _config: missing)
    found, _, output = run("schemas", "check", *flags())
    assert (found, output.split()) == (code, missing)


def test_what_was_registered_is_printed(run, monkeypatch):
    monkeypatch.setattr(schemas_command, "register", lambda _config: ["bank.t-key"])
    assert run("schemas", "register", *flags())[::2] == (0, "bank.t-key\n")


def test_a_schema_is_printed(run, monkeypatch):
    monkeypatch.setattr(
        schemas_command,
        "shown",
        lambda _config, table, *, is_key: {"name": table, "key": is_key},
    )
    code, _, output = run("schemas", "show", "t", "--key", *flags())
    assert (code, json.loads(output)) == (0, {"name": "t", "key": True})


def test_topics_are_printed_as_asyncapi(run, monkeypatch):
    monkeypatch.setattr(schemas_command, "stream_topics", lambda _config: [])
    code, _, output = run("schemas", "asyncapi", *flags())
    assert (code, json.loads(output)["asyncapi"]) == (0, "3.0.0")
