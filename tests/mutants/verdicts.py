"""What the tests say of code that is broken on purpose."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Literal

__all__ = ["Verdict", "verdicts_on"]

Verdict = Literal["passed", "failed", "broke"]

_REPOSITORY = Path(__file__).resolve().parents[2]


def verdicts_on(*names: str) -> tuple[dict[str, Verdict], str]:
    """Return the verdict of each test that a mutant names, and what pytest printed.

    With `whole` before the names: of the tests of these mutants, on whole code.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutants", *names],
        cwd=_REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    *printed, last = done.stdout.splitlines() or [""]
    if done.returncode != 0 or not last.startswith("{"):
        return {}, done.stdout + done.stderr
    return json.loads(last), "\n".join(printed)
