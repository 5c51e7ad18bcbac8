"""What closing a source closes."""

from __future__ import annotations

from types import SimpleNamespace

from tidegate.producer.commands.opened_source import OpenedSource


def test_the_connections_are_closed_before_what_reads_by_them():
    closed = []
    channels = SimpleNamespace(close=lambda: closed.append("channels"))
    tasks = SimpleNamespace(close=lambda: closed.append("tasks"))
    OpenedSource(None, None, None, tasks, channels).close()
    assert closed == ["channels", "tasks"]


def test_files_have_no_connections():
    closed = []
    OpenedSource(None, None, None, SimpleNamespace(close=lambda: closed.append("tasks"))).close()
    assert closed == ["tasks"]
