"""What the programs found: one outcome for each check and client, and the table of them."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from conformance.programs import Program
from spanner_simulator import Simulator

HERE = Path(__file__).resolve().parent
RUN_TIMEOUT_S = 900
DETAIL_LENGTH = 300
# One failure early on brings others after it.
SHOWN_FAILURES = 20


# The checks, as README.md lists them, with whether every client walks them.
CHECKS: dict[str, bool] = {
    name: clients == "all"
    for name, clients in re.findall(
        r"^\| `(\w+)` \| ([\w, ]+) \|", (HERE / "README.md").read_text(), re.MULTILINE
    )
}


def checks_of(program: Program) -> list[str]:
    """The checks that a program must report."""
    return [name for name, is_for_all in CHECKS.items() if is_for_all or program.walks_all]


@dataclass(slots=True)
class ProgramReport:
    """What one program said; `trouble` is what kept it from saying all."""

    program: Program
    outcomes: dict[str, tuple[bool, str]] = field(default_factory=dict)
    trouble: str = ""

    @property
    def failures(self) -> list[str]:
        """One line for each check that failed, was left out or is unknown."""
        name, expected = self.program.name, checks_of(self.program)
        lines = [f"{name}: {self.trouble}"] if self.trouble else []
        if self.trouble and not self.outcomes:
            return lines
        failed = [(check, detail) for check, (ok, detail) in self.outcomes.items() if not ok]
        failed += [(check, "not reported") for check in expected if check not in self.outcomes]
        failed += [(check, "not listed") for check in self.outcomes if check not in expected]
        return lines + [f"{name} {check}: {detail}" for check, detail in failed]


def run_program(
    program: Program, command: list[str], simulator: Simulator, log: Path
) -> ProgramReport:
    """Run one program to its end. Its standard error goes to `log`."""
    environ = {
        **os.environ,
        **simulator.environment(),
        "CONFORMANCE_CONTROL": simulator.control_address,
        "CONFORMANCE_SCHEMA": str(HERE / "schema"),
        # Clients would look for Google's metadata server.
        "METADATA_SERVER_DETECTION": "none",
        "GRPC_VERBOSITY": "NONE",
    }
    report = ProgramReport(program)
    with log.open("w") as errors:
        try:
            done = subprocess.run(
                command,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                timeout=RUN_TIMEOUT_S,
                check=False,
            )
            output = done.stdout
            if done.returncode != 0:
                report.trouble = f"exit code {done.returncode}; its words are in {log}"
        except subprocess.TimeoutExpired as error:
            output = error.stdout.decode() if isinstance(error.stdout, bytes) else ""
            report.trouble = f"not done within {RUN_TIMEOUT_S} s"
    for found in (json.loads(line) for line in output.splitlines() if line.startswith("{")):
        detail = " ".join(str(found["detail"]).split())[:DETAIL_LENGTH]
        report.outcomes[found["check"]] = bool(found["ok"]), detail
    return report


def show(reports: Iterable[ProgramReport], console: Console) -> None:
    """The table check by client, and below it a line for each failure."""
    reports = list(reports)
    table = Table("check", *(one.program.name for one in reports))
    for check in CHECKS:
        marks = [one.outcomes.get(check) for one in reports]
        table.add_row(
            check, *("-" if mark is None else "ok" if mark[0] else "FAILED" for mark in marks)
        )
    console.print(table)
    for one in reports:
        for line in one.failures[:SHOWN_FAILURES]:
            console.print(line, markup=False, soft_wrap=True)
        if len(one.failures) > SHOWN_FAILURES:
            console.print(f"{one.program.name}: and {len(one.failures) - SHOWN_FAILURES} more")
