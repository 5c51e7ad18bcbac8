"""The process gets its log and hooks back after each test."""

import sys
import threading

import pytest
import structlog


@pytest.fixture(autouse=True)
def _log_of_this_process(monkeypatch):
    """Give the process its log and hooks back: they hold captured streams, which are closed."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    yield
    structlog.reset_defaults()
