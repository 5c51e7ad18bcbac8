"""Finds a Java that runs the installed Spark, wherever this machine keeps it.

Standard library only: `dev` uses this module before anything is installed.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tidegate.local_stack.errors import JavaMissingError, JavaUnsupportedError
from tidegate.program.java import JAVA_MIN, Java, install_hint, java_max, probe

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


def candidates(
    environ: Mapping[str, str], *, places: Iterable[str] = USUAL_PLACES
) -> Iterator[Path]:
    """Yield executable files named `java`, each real file once: JAVA_HOME, PATH, usual places."""
    seen: set[str] = set()
    for path in _named(environ, places):
        real = os.path.realpath(path)
        if real not in seen and os.access(path, os.X_OK) and Path(path).is_file():
            seen.add(real)
            yield Path(path)


def _named(environ: Mapping[str, str], places: Iterable[str]) -> Iterator[str]:
    if environ.get("JAVA_HOME"):
        yield str(Path(environ["JAVA_HOME"]) / "bin" / "java")
    # shutil.which stops at the first, and a stub there must not hide a real one in a later folder.
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


def require_java_home(environ: Mapping[str, str] | None = None) -> None:
    """Raise JavaMissingError if JAVA_HOME names a folder without a Java."""
    environ = os.environ if environ is None else environ
    home = environ.get("JAVA_HOME")
    if home and not (Path(home) / "bin" / "java").is_file():
        raise JavaMissingError(
            f"JAVA_HOME is {home}, and {home}/bin/java does not exist",
            hint=f"Set it to a Java {JAVA_MIN} to {java_max()}, or unset it",
        )


def find_java(
    environ: Mapping[str, str] | None = None, *, places: Iterable[str] = USUAL_PLACES
) -> Java:
    """Return the first Java of an accepted version.

    Raises JavaUnsupportedError if only other versions run, JavaMissingError if no Java runs; both
    have the command that installs one.
    """
    environ = os.environ if environ is None else environ
    refused: list[Java] = []
    for path in candidates(environ, places=places):
        java = probe(path)
        if java is None:
            continue
        if java.is_accepted:
            return java
        refused.append(java)
    wanted = f"Java {JAVA_MIN} to {java_max()} is needed"
    hint = install_hint(environ)
    if refused:
        versions = ", ".join(f"{java.program} is Java {java.major}" for java in refused)
        raise JavaUnsupportedError(f"{wanted}, but {versions}", hint=hint)
    raise JavaMissingError(f"{wanted}, and no java was found that runs", hint=hint)
