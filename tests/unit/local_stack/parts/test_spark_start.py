"""It waits until its Java has ended, and ends as Java does; the integration test has a real one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from tidegate.local_stack.parts import spark_start as module


@pytest.mark.parametrize("exit_code", [0, 1])
def test_java_has_ended_when_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exit_code: int
):
    session, asked = MagicMock(), {}
    java = session.sparkContext._gateway.proc
    java.wait.return_value = exit_code

    def local_session(**settings: Any) -> MagicMock:
        asked.update(settings)
        return session

    monkeypatch.setattr(module, "local_session", local_session)
    steps = MagicMock()
    for name, step in (("work", session.sql), ("stop", session.stop), ("wait", java.wait)):
        steps.attach_mock(step, name)
    steps.attach_mock(java.stdin.close, "end")

    ended = module.main(["--jars", "/a.jar", "--folder", str(tmp_path), "--java-options=-Xmx1g"])

    assert ended == exit_code
    assert SimpleNamespace(**asked) == SimpleNamespace(
        master="local[2]",
        packages="",
        jars="/a.jar",
        app_name="tidegate-start",
        java_options="-Xmx1g",
    )
    names = [name for name, *_ in steps.mock_calls if name in {"work", "stop", "end", "wait"}]
    assert names == ["work", "work", "stop", "end", "wait"]
