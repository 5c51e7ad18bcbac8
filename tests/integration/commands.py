"""Runs a command of `tidegate-producer` with the settings of a pipeline's workers."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.local_stack.parts.programs import Programs

__all__ = ["run_command"]

_PATIENCE_S = 240


def run_command(
    programs: Programs, *arguments: str, **environ: str
) -> subprocess.CompletedProcess[str]:
    """Return what a command has printed, and its exit code; `environ` is added to its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tidegate.producer", *arguments],
        capture_output=True, text=True, check=False, timeout=_PATIENCE_S,
        env={**(programs.worker("unused", start="now").spec.environ or {}), **environ},
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    return done
