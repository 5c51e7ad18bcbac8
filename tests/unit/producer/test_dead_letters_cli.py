"""`dead-letters` passes its flags on, and prints the result."""

from __future__ import annotations

import json

from tests.unit.producer.test_cli import flags, run  # noqa: F401 - a fixture
from tidegate.producer.commands import dead_letters as command
from tidegate.producer.commands.dead_letters import DeadLetterReport, ListedGroup

GROUPS = tuple(
    ListedGroup(
        reason, "Users", None, 2, "2024-01-01T00:00:00Z", "2024-01-02T00:00:00Z", "why", "t",
        "here", 0, 7, "do this",
    )
    for reason in ("MessageTooLarge", "KeyParked")
)  # fmt: skip


def test_a_list_and_its_json(run, monkeypatch):  # noqa: F811 - the fixture
    def found(config, *, progress):
        assert config.prefix == "bank"
        progress("counting", 3)
        return DeadLetterReport("bank-dead-letter", 4, GROUPS, 0)

    monkeypatch.setattr(command, "dead_letters", found)
    code, _, text = run("dead-letters", *flags(), "--limit", "1")
    assert code == 0
    assert "4 records of bank-dead-letter" in text
    assert "MessageTooLarge" in text
    assert "KeyParked" not in text
    assert "1 more" in text
    code, _, text = run("dead-letters", *flags(), "--json")
    assert code == 0
    assert [one["reason"] for one in json.loads(text)["groups"]] == ["MessageTooLarge", "KeyParked"]


def test_a_wrong_flag_is_named(run):  # noqa: F811 - the fixture
    code, error, _ = run("dead-letters", *flags(prefix="-x"))
    assert code == 2
    assert "prefix" in error
