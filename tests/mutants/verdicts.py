"""What the tests say of code that is broken on purpose."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Literal

from tests.command_server import run_module

Verdict = Literal["passed", "failed", "broke"]
_REPOSITORY = Path(__file__).resolve().parents[2]
_TIMEOUT_S = 1_800


def verdicts_on(*names: str) -> tuple[dict[str, Verdict], str]:
    """Return the verdict of each test that a mutant names, and what pytest printed.

    With `whole` before the names: of the tests of these mutants, on whole code.
    """
    done = run_module(
        "tests.mutants", *names, environ=os.environ, timeout_s=_TIMEOUT_S, folder=_REPOSITORY
    )
    *printed, last = done.stdout.splitlines() or [""]
    if done.returncode != 0 or not last.startswith("{"):
        return {}, done.stdout + done.stderr
    return json.loads(last), "\n".join(printed)
