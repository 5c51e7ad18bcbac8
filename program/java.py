"""Finds a `java` that can run the installed Spark, Kafka and the registry.

Each minor version of Spark supports Java up to another release (`spark_versions`): Spark 4.0 and
4.1 fail on 24 and later.  Some systems have a `java` that only prints where to get one, so a `java`
counts only if it prints its version.

Standard library only: `dev` uses this module before anything is installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tidegate.program.spark_versions import installed_line
from tidegate.schemas.errors import ConfigError

JAVA_MIN = 17

QUICK_START = (
    "-XX:TieredStopAtLevel=1",
    # Java's default with both compilers.  With one it is 48 MB, which Spark fills within minutes:
    # a thread then searches it for code to drop, for as much CPU time as the queries take.
    "-XX:ReservedCodeCacheSize=240m",
    "-XX:+UseSerialGC",
)
"""Options of a Java that runs Spark for minutes.

Without its second compiler the first release takes half the time; in a run of minutes the faster
code of that compiler does not make up for it.
"""

# A first start from a cold disk takes a second or two; a stub may hang.
PROBE_DEADLINE_S = 20.0

_VERSION = re.compile(r'version "(?P<first>\d+)(?:\.(?P<second>\d+))?')


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that printed its version."""

    program: Path
    major: int

    @property
    def home(self) -> Path:
        """The value for `JAVA_HOME`: two folders above the program, links resolved."""
        return self.program.resolve().parent.parent

    @property
    def is_accepted(self) -> bool:
        """Whether the installed Spark, Kafka and the registry all run on it."""
        return JAVA_MIN <= self.major <= java_max()


def java_max() -> int:
    """Return the newest Java that the installed Spark supports."""
    return installed_line().java_max


def probe(program: Path) -> Java | None:
    """Run `program -version`; None if it does not run, hangs, or prints no Java version."""
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


def require_java(environ: Mapping[str, str] | None = None) -> Java:
    """Return the Java that Spark would start: that of JAVA_HOME, or the first on the path.

    Raises ConfigError, with the command to install one, if there is none or Spark does not run on
    it.
    """
    environ = os.environ if environ is None else environ
    home = environ.get("JAVA_HOME")
    path = f"{home}/bin/java" if home else shutil.which("java", path=environ.get("PATH", ""))
    java = probe(Path(path)) if path else None
    if java is not None and java.is_accepted:
        return java
    if java is not None:
        fault = f"{path} is Java {java.major}"
    elif path:
        fault = f"{path} does not run" + (" (JAVA_HOME names its folder)" if home else "")
    else:
        fault = "no java is on the path, and JAVA_HOME is not set"
    raise ConfigError(
        f"Spark needs Java {JAVA_MIN} to {java_max()}: {fault}", hint=install_hint(environ)
    )


def install_hint(environ: Mapping[str, str] | None = None) -> str:
    """Return the command that installs an accepted Java on this machine."""
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
    return f"Install a JRE {JAVA_MIN} or {java_max()} from your system's packages, or set JAVA_HOME"
