"""Run the fuzz targets for as long as asked: `python tests/fuzz --minutes 5`.

Round after round every target runs in a process of its own, with a fresh seed and twice as many
examples as in the round before.  A process that takes more memory or far more time than it may is
a finding like any other.  Exit code 0: nothing found; 1: something was, with the line that finds it
again; 2: usage.
"""

import argparse
import os
import re
import resource
import secrets
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
EXAMPLES_FIRST = 200
EXAMPLES_MAX = 12_800
MEMORY_MAX_BYTES = 4 << 30
# Of one example of one property, by far: what a hang is, in a test of so many.
STALL_S_PER_EXAMPLE = 1.0
STALL_S_LEAST = 120.0
# Releases of Hypothesis differ in the word after the numbers.
_COUNTED = re.compile(r"(\d+) passing(?: examples)?, (\d+) failing")


@dataclass(slots=True)
class Target:
    """One file of properties, and what its runs came to."""

    path: Path
    runs: int = 0
    examples: int = 0
    seconds: float = 0.0
    findings: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The part of the file's name between `test_fuzz_` and the suffix."""
        return self.path.stem.removeprefix("test_fuzz_")

    @property
    def properties(self) -> int:
        """How many properties the file has."""
        return len(re.findall(r"^@given", self.path.read_text(), re.MULTILINE))

    def run(self, *, seed: int, examples: int, seconds_left: float | None = None) -> None:
        """Run once, and report what was found; `seconds_left` ends it without a finding."""
        stall_s = max(STALL_S_LEAST, examples * STALL_S_PER_EXAMPLE * self.properties)
        limit_s = stall_s if seconds_left is None else min(stall_s, seconds_left)
        command = [
            *(sys.executable, "-m", "pytest", "-q", "-x", "--no-header", "--tb=short"),
            *("-p", "no:cacheprovider", "-p", "no:randomly", "--timeout=0"),
            *("--hypothesis-profile=fuzz", f"--hypothesis-seed={seed}"),
            *("--hypothesis-show-statistics", str(self.path.relative_to(REPOSITORY))),
        ]
        begun = time.monotonic()
        try:
            done = subprocess.run(  # noqa: PLW1510 - the code is looked at
                command,
                cwd=REPOSITORY,
                env={**os.environ, "TIDEGATE_FUZZ_EXAMPLES": str(examples)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=limit_s,
                preexec_fn=bound_memory,
            )
        except subprocess.TimeoutExpired:
            found = f"still running after {stall_s:.0f} s" if limit_s == stall_s else ""
        else:
            self.runs += 1
            counts = _COUNTED.findall(done.stdout)
            self.examples += sum(int(passed) + int(failed) for passed, failed in counts)
            found = done.stdout.split("Hypothesis Statistics")[0].strip()
            found = (found or f"exit code {done.returncode}") if done.returncode else ""
        self.seconds += time.monotonic() - begun
        if found:
            self.findings.append(
                f"python tests/fuzz --target {self.name} --seed {seed} --examples {examples}"
            )
            say(f"--- {self.name}: {self.findings[-1]}\n{found}\n")


def bound_memory() -> None:
    """Let an allocation without bounds fail at once, not when the machine is full."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX_BYTES, MEMORY_MAX_BYTES))


def fuzz(targets: list[Target], *, seconds: float, examples: int) -> None:
    """Go round the targets until the time is over; a target that found something rests."""
    end = time.monotonic() + seconds
    while awake := [target for target in targets if not target.findings]:
        for target in awake:
            left = end - time.monotonic()
            if left <= 0:
                return
            target.run(seed=secrets.randbelow(1 << 32), examples=examples, seconds_left=left)
        examples = min(2 * examples, EXAMPLES_MAX)


def say(text: str) -> None:
    """Print at once: a run may be watched through a pipe."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> int:
    """Run as asked; print one line per target."""
    everything = [Target(path) for path in sorted(HERE.glob("test_fuzz_*.py"))]
    parser = argparse.ArgumentParser(prog="python tests/fuzz", description=__doc__.split(":")[0])
    parser.add_argument("--minutes", type=float, default=1.0, help="how long (default: 1)")
    parser.add_argument("--target", action="append", choices=[t.name for t in everything])
    parser.add_argument("--seed", type=int, help="one run with this seed, instead of minutes")
    parser.add_argument("--examples", type=int, default=EXAMPLES_FIRST, help="of the first round")
    asked = parser.parse_args()
    if asked.minutes <= 0 or asked.examples < 1:
        parser.error("--minutes and --examples must be more than 0")
    # As an exception, so that the run that is under way is ended too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    targets = [t for t in everything if not asked.target or t.name in asked.target]
    if asked.seed is None:
        fuzz(targets, seconds=60 * asked.minutes, examples=asked.examples)
    else:
        for target in targets:
            target.run(seed=asked.seed, examples=asked.examples)
    for target in targets:
        verdict = "; ".join(target.findings) or "nothing found"
        say(
            f"{target.name:<16} {target.runs:>3} runs {target.examples:>9} examples "
            f"{target.seconds:>6.0f} s  {verdict}"
        )
    failed = sum(bool(target.findings) for target in targets)
    say(f"{len(targets) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
