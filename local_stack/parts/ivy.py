"""Ivy, whose jar is a part of pyspark: fetches the jars that an `ivy.xml` lists.

They come from Ivy's default repository, or from those of the operator's settings file; no address
is in this code.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

from tidegate.local_stack.errors import FetchError
from tidegate.program.java import Java
from tidegate.program.spark_versions import installed_line

# Operators behind a mirror set this to their ivysettings.xml, as for Spark.
SETTINGS_VARIABLE = "TIDEGATE_IVY_SETTINGS"

LAST_LINES = 200


def find_ivy_jar() -> Path:
    """Return Ivy's jar in the installed pyspark, without importing pyspark."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise FetchError(
            "pyspark is not installed; its Ivy fetches jars",
            hint="Type: pip install 'tidegate[local]'",
        )
    for location in spec.submodule_search_locations:
        for jar in sorted((Path(location) / "jars").glob("ivy-*.jar")):
            return jar
    raise FetchError(
        "the installed pyspark has no Ivy jar",
        hint=f"Type: pip install 'pyspark=={installed_line().pyspark}'",
    )


def retrieve(
    java: Java,
    ivy_xml: bytes,
    *,
    pattern: str,
    work: Path,
    cache: Path,
    what: str,
    report: Callable[[str], None],
    environ: Mapping[str, str] | None = None,
) -> None:
    """Fetch the jars of `ivy_xml` into the folder `work`, named by Ivy's `pattern`.

    What is fetched stays in `cache` after a failure, so that the next attempt continues there.
    `report` gets a short line for each step; `what` names the jars in lines and errors.
    Raises FetchError with Ivy's last lines.
    """
    environ = os.environ if environ is None else environ
    ivy_file = work / "ivy.xml"
    ivy_file.write_bytes(ivy_xml)
    command = [str(java.program), "-Xmx256m", "-jar", str(find_ivy_jar())]
    settings = environ.get(SETTINGS_VARIABLE)
    if settings:
        command += ["-settings", settings]
    command += ["-ivy", str(ivy_file), "-cache", str(cache)]
    command += ["-retrieve", f"{work}/{pattern}"]
    last_lines: deque[str] = deque(maxlen=LAST_LINES)
    found = fetched = 0
    report(f"resolving {what}")
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
        env=dict(environ),
        cwd=work,
    ) as ivy:
        try:
            for line in ivy.stdout or ():
                last_lines.append(line.rstrip())
                words = line.split()
                match words[:1]:
                    case ["found"]:
                        found += 1
                        report(f"{found} modules found, the latest {words[1]}")
                    case ["downloading"]:
                        report(f"{fetched} files fetched, now {words[1].rsplit('/', 1)[-1]}")
                    case ["[SUCCESSFUL"]:
                        fetched += 1
                        report(f"{fetched} files fetched")
                    case _:
                        pass
        except BaseException:
            ivy.kill()
            raise
    ivy_file.unlink()
    if ivy.returncode != 0:
        raise FetchError(
            f"fetching {what} failed: {_complaint(last_lines)}",
            hint="Check the network (and a proxy in JAVA_TOOL_OPTIONS), then try again; "
            f"behind a mirror, set {SETTINGS_VARIABLE} to an ivysettings.xml",
            exit_code_of_ivy=ivy.returncode,
        )


def _complaint(lines: deque[str]) -> str:
    wanted = [
        line.strip(":\t ")
        for line in lines
        if any(word in line for word in ("UNRESOLVED", "FAILED", "not found", "xception", "rror"))
    ]
    return "; ".join(wanted[:4]) or " ".join(list(lines)[-2:]) or "no output"
