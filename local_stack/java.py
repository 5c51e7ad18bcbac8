"""Finding a Java that runs, between 17 and 21.

Spark 4.0 needs 17 and fails on 23 and later; between stands 21, the last release that both Spark
and Kafka are run on.  A file called `java` proves nothing: some systems ship a stub that only tells
where to buy one.  So every candidate is asked for its version, and one that does not answer is
none.

Standard library only: `dev` uses this module before anything is installed.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.local_stack.errors import JavaMissingError, JavaUnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["JAVA_MAX", "JAVA_MIN", "Java", "candidates", "find_java", "install_hint", "probe"]

JAVA_MIN = 17
JAVA_MAX = 21

# A first start from a cold disk takes a second or two; a hanging stub must not hang us.
PROBE_DEADLINE_S = 20.0

USUAL_PLACES = (
    "/usr/lib/jvm/*/bin/java",
    "/usr/java/*/bin/java",
    "/opt/java/*/bin/java",
    "/opt/*/bin/java",
    "/opt/homebrew/opt/openjdk@*/bin/java",
    "/opt/homebrew/opt/openjdk/bin/java",
    "/usr/local/opt/openjdk@*/bin/java",
    "/usr/local/opt/openjdk/bin/java",
    "/home/linuxbrew/.linuxbrew/opt/openjdk@*/bin/java",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java",
    "~/.sdkman/candidates/java/*/bin/java",
    "~/.jdks/*/bin/java",
)

_VERSION = re.compile(r'version "(?P<first>\d+)(?:\.(?P<second>\d+))?')


@dataclass(frozen=True, slots=True)
class Java:
    """One Java that answered: its program, its major version, and its home for `JAVA_HOME`."""

    program: Path
    major: int

    @property
    def home(self) -> Path:
        """The folder that `JAVA_HOME` must name: two above the program that any link leads to."""
        return self.program.resolve().parent.parent

    @property
    def is_accepted(self) -> bool:
        """Whether Spark, Kafka and the registry all run on it."""
        return JAVA_MIN <= self.major <= JAVA_MAX


def candidates(
    environ: Mapping[str, str], *, places: Iterable[str] = USUAL_PLACES
) -> Iterator[Path]:
    """Files that might be a `java`, each real file once: JAVA_HOME, PATH, usual places."""
    seen: set[str] = set()
    for path in _named(environ, places):
        real = os.path.realpath(path)
        if real not in seen and os.access(path, os.X_OK) and Path(path).is_file():
            seen.add(real)
            yield Path(path)


def _named(environ: Mapping[str, str], places: Iterable[str]) -> Iterator[str]:
    if environ.get("JAVA_HOME"):
        yield str(Path(environ["JAVA_HOME"]) / "bin" / "java")
    # shutil.which would stop at the first; a stub there must not hide a real one behind it.
    for folder in environ.get("PATH", "").split(os.pathsep):
        if folder:
            yield str(Path(folder) / "java")
    home = environ.get("HOME") or ""
    for place in places:
        if place.startswith("~"):
            if home:
                yield from sorted(glob.glob(home + place[1:]))  # noqa: PTH207  # absolute pattern
        else:
            yield from sorted(glob.glob(place))  # noqa: PTH207  # absolute pattern


def probe(program: Path) -> Java | None:
    """Ask `program` for its version; None if it does not run, hangs, or is no Java."""
    try:
        done = subprocess.run(
            [str(program), "-version"],
            capture_output=True,
            text=True,
            timeout=PROBE_DEADLINE_S,
            check=False,
            stdin=subprocess.DEVNULL,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(done.stderr + done.stdout)
    if done.returncode != 0 or match is None:
        return None
    first = int(match["first"])
    # Up to Java 8 the first number was always 1.
    major = int(match["second"] or 0) if first == 1 else first
    return Java(program=program, major=major)


def find_java(
    environ: Mapping[str, str] | None = None, *, places: Iterable[str] = USUAL_PLACES
) -> Java:
    """The first accepted Java.

    Raises `JavaUnsupportedError` if only others were found, `JavaMissingError` if none runs; both
    say what to type.
    """
    environ = os.environ if environ is None else environ
    others: list[Java] = []
    for path in candidates(environ, places=places):
        java = probe(path)
        if java is None:
            continue
        if java.is_accepted:
            return java
        others.append(java)
    wanted = f"Java {JAVA_MIN} to {JAVA_MAX} is needed"
    hint = install_hint(environ)
    if others:
        found = ", ".join(f"{java.program} is Java {java.major}" for java in others)
        raise JavaUnsupportedError(f"{wanted}, but {found}", hint=hint)
    raise JavaMissingError(f"{wanted}, and no java was found that runs", hint=hint)


def install_hint(environ: Mapping[str, str] | None = None) -> str:
    """What to type on this machine to get a Java that is accepted."""
    environ = os.environ if environ is None else environ
    path = environ.get("PATH", "")
    if shutil.which("brew", path=path):
        return "Type: brew install openjdk@17"
    if shutil.which("apt-get", path=path):
        return "Type: sudo apt-get install openjdk-17-jre-headless"
    if shutil.which("dnf", path=path):
        return "Type: sudo dnf install java-17-openjdk-headless"
    if sys.platform == "darwin":
        return "Install a JDK 17 (with Homebrew: brew install openjdk@17), or set JAVA_HOME to one"
    return f"Install a JRE {JAVA_MIN} or {JAVA_MAX} from your system's packages, or set JAVA_HOME"
