"""Who runs a command is named, also where the user has no name."""

from __future__ import annotations

import getpass
import socket

import pytest

from tidegate.producer.commands.this_user import this_user


def test_user_and_host(monkeypatch):
    monkeypatch.setattr(getpass, "getuser", lambda: "ann")
    monkeypatch.setattr(socket, "gethostname", lambda: "h1")
    assert this_user() == "ann@h1"


@pytest.mark.parametrize("error", [KeyError, OSError])
def test_a_user_without_a_name(monkeypatch, error):
    def nobody():
        raise error

    monkeypatch.setattr(getpass, "getuser", nobody)
    assert this_user().startswith("unknown@")
