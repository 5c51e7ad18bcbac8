"""Run the fuzz targets for as long as asked: `python tests/fuzz --minutes 5`.

Round after round every target runs in a process of its own, with a fresh seed and twice as many
examples as in the round before.  A process that takes more memory or far more time than it may is
a finding like any other.  Exit code 0: nothing found; 1: something was, with the line that finds it
again; 2: usage.
"""

from __future__ import annotations

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
# Of one example, by far: what a hang is, in a test of so many.
STALL_S_PER_EXAMPLE = 0.25
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
        """What stands between `test_fuzz_` and the suffix."""
        return self.path.stem.removeprefix("test_fuzz_")


def command(target: Target, *, seed: int) -> list[str]:
    """Return the command of one run."""
    return [
        *(sys.executable, "-m", "pytest", "-q", "-x", "--no-header", "--tb=short"),
        *("-p", "no:cacheprovider", "-p", "no:randomly", "--timeout=0"),
        *("--hypothesis-profile=fuzz", f"--hypothesis-seed={seed}"),
        *("--hypothesis-show-statistics", str(target.path.relative_to(REPOSITORY))),
    ]


def run(target: Target, *, seed: int, examples: int, seconds_left: float | None) -> str | None:
    """Run a target once; return what it found, or None.

    `seconds_left` ends the run early, which is no finding.
    """
    stall_s = max(STALL_S_LEAST, examples * STALL_S_PER_EXAMPLE * target_size(target))
    limit_s = stall_s if seconds_left is None else min(stall_s, seconds_left)
    begun = time.monotonic()
    try:
        done = subprocess.run(  # noqa: PLW1510 - the code is looked at
            command(target, seed=seed),
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
        target.seconds += time.monotonic() - begun
        return f"still running after {stall_s:.0f} s" if limit_s == stall_s else None
    target.seconds += time.monotonic() - begun
    target.runs += 1
    target.examples += sum(
        int(passed) + int(failed) for passed, failed in _COUNTED.findall(done.stdout)
    )
    if done.returncode == 0:
        return None
    return done.stdout.split("Hypothesis Statistics")[0].strip() or f"exit code {done.returncode}"


def bound_memory() -> None:
    """Let an allocation without bounds fail at once, not when the machine is full."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX_BYTES, MEMORY_MAX_BYTES))


def target_size(target: Target) -> int:
    """Return how many properties a target has."""
    return len(re.findall(r"^@given", target.path.read_text(), re.MULTILINE))


def again(target: Target, *, seed: int, examples: int) -> str:
    """Return the command line that repeats a run."""
    return f"python tests/fuzz --target {target.name} --seed {seed} --examples {examples}"


def fuzz(targets: list[Target], *, seconds: float, examples: int) -> None:
    """Go round the targets until the time is over; a target that found something rests."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        awake = [target for target in targets if not target.findings]
        if not awake:
            return
        for target in awake:
            left = end - time.monotonic()
            if left <= 0:
                return
            seed = secrets.randbelow(1 << 32)
            found = run(target, seed=seed, examples=examples, seconds_left=left)
            if found is not None:
                report(target, found, seed=seed, examples=examples)
        examples = min(2 * examples, EXAMPLES_MAX)


def report(target: Target, found: str, *, seed: int, examples: int) -> None:
    """Print a finding with the line that finds it again."""
    target.findings.append(again(target, seed=seed, examples=examples))
    say(f"--- {target.name}: {target.findings[-1]}\n{found}\n")


def say(text: str) -> None:
    """Print at once: a run may be watched through a pipe."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def all_targets() -> list[Target]:
    """Return every target, by name."""
    return [Target(path) for path in sorted(HERE.glob("test_fuzz_*.py"))]


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python tests/fuzz", description=__doc__.split(":")[0])
    parser.add_argument("--minutes", type=float, default=1.0, help="how long (default: 1)")
    parser.add_argument("--target", action="append", choices=[t.name for t in all_targets()])
    parser.add_argument("--seed", type=int, help="one run with this seed, instead of minutes")
    parser.add_argument("--examples", type=int, default=EXAMPLES_FIRST, help="of the first round")
    found = parser.parse_args(words)
    if found.minutes <= 0 or found.examples < 1:
        parser.error("--minutes and --examples must be more than 0")
    return found


def main() -> int:
    """Run as asked; print one line per target."""
    asked = arguments()
    # As an exception, so that the run that is under way is ended too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    targets = [t for t in all_targets() if not asked.target or t.name in asked.target]
    if asked.seed is None:
        fuzz(targets, seconds=60 * asked.minutes, examples=asked.examples)
    else:
        for target in targets:
            found = run(target, seed=asked.seed, examples=asked.examples, seconds_left=None)
            if found is not None:
                report(target, found, seed=asked.seed, examples=asked.examples)
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
