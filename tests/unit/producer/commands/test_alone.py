"""A command that has to be alone waits until workers have left, and names those that stay."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tidegate.producer.commands import alone
from tidegate.schemas.errors import ConfigError


@pytest.fixture
def ask(monkeypatch):
    """Ask with these members at each look; return what was said meanwhile."""

    def ask_with(*looks, former_run="accept-gap"):
        answers = iter(looks)
        now = {"s": 0.0}
        monkeypatch.setattr(alone, "RetryingAdmin", lambda _config: None)
        monkeypatch.setattr(alone, "admin_config", lambda *_: {})
        monkeypatch.setattr(alone, "group_members", lambda *_: next(answers, looks[-1]))
        monkeypatch.setattr(alone.time, "monotonic", lambda: now["s"])
        monkeypatch.setattr(alone.time, "sleep", lambda s: now.update(s=now["s"] + s))
        config = SimpleNamespace(session_timeout_ms=3_000, bootstrap_servers="b")
        said = []
        alone.require_no_worker(
            config, "g", {}, lambda what, _: said.append(what), former_run=former_run
        )
        return said

    return ask_with


def test_workers_that_leave_are_waited_for(ask):
    assert ask(["w1", "w2"], ["w2"], []) == [
        "waiting for workers to leave the group: w1, w2",
        "waiting for workers to leave the group: w2",
    ]


def test_a_former_run_of_the_same_command_is_no_worker(ask):
    assert ask(["accept-gap"]) == []


def test_a_command_that_joins_no_group_exempts_no_member(ask):
    with pytest.raises(ConfigError, match="workers run in group g: accept-gap"):
        ask(["accept-gap"], former_run=None)


def test_workers_that_stay_are_named(ask):
    with pytest.raises(ConfigError, match="workers run in group g: w1"):
        ask(["w1", "accept-gap"])
