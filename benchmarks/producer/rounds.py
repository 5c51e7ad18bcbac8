"""Rounds in a process that imports Tidegate from a given checkout.

The parent keeps two of them, one per checkout, and runs their rounds in turn, so that both meet the
same state of the machine.
"""

from __future__ import annotations

import importlib
import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.producer.responses import Case

__all__ = ["Checkout", "serve"]

_OWN = Path(__file__).resolve().parents[2]
_PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import tidegate
assert tidegate.__file__.startswith(sys.argv[1]), tidegate.__file__
sys.path[0] = sys.argv[2]
from benchmarks.producer.rounds import serve
serve()
"""


class Checkout:
    """A child process with the code of one checkout."""

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _PROGRAM, str(path.resolve()), str(_OWN)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=_OWN,
        )

    def prepare(self, stage: str, case: Case, changes: int) -> None:
        """Prepare a stage and run it once, to warm up."""
        self._ask({"stage": stage, "rows": case.rows, "mods": case.mods, "changes": changes})

    def run(self) -> float:
        """Run a round of the prepared stage; return its CPU microseconds per change."""
        return self._ask({})

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _ask(self, request: dict[str, object]) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            sys.exit("a round failed; see above")
        return float(answer)


def serve() -> None:
    """Run rounds until standard input ends: a line with a stage prepares it, an empty one runs."""
    import structlog  # noqa: PLC0415 - only in the child

    from benchmarks.producer.responses import Case  # noqa: PLC0415 - only in the child
    from benchmarks.producer.stages import STAGES  # noqa: PLC0415 - only in the child
    from benchmarks.producer.worker import WORKERS  # noqa: PLC0415 - only in the child

    # Standard output is for the answers.
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    stages = {**STAGES, **WORKERS}
    try:
        settle = importlib.import_module("tidegate.program.garbage").collect_rarely
    except ModuleNotFoundError:  # a checkout that leaves the collector as it is

        def settle() -> None:
            pass

    run, changes = (lambda: 0.0), 1
    for line in sys.stdin:
        request = json.loads(line)
        if request:
            changes = request["changes"]
            run = stages[request["stage"]](Case(request["rows"], request["mods"]), changes)
            run()
            settle()
        print(run() * 1e6 / changes, flush=True)
