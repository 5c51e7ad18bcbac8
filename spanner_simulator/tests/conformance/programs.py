"""The programs, one for each official client: how each is fetched, built and started.

Nothing is built beside the sources: what a toolchain makes lies in the folder that it is given, and
is used again while the files it was made from are the same.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).resolve().parent
FETCH_TIMEOUT_S = 300
BUILD_TIMEOUT_S = 900


class FetchFailedError(Exception):
    """The packages of a program could not be fetched in time."""


class BuildFailedError(Exception):
    """A program does not build."""


@dataclass(frozen=True, slots=True)
class Program:
    """One client's program. Commands run in the folder that the program is built in.

    `locks` are the files that say what is fetched; `{folder}` in `command` is that folder.
    `walks_all`: whether it walks the checks for Python and Java too.
    """

    name: str
    tools: tuple[str, ...]
    locks: tuple[str, ...]
    command: tuple[str, ...]
    fetch: tuple[str, ...] = ()
    build: tuple[str, ...] = ()
    walks_all: bool = True

    def missing(self) -> str:
        """What this program needs and the machine lacks; empty when it can be built."""
        lacking = [tool for tool in self.tools if shutil.which(tool) is None]
        return f"{', '.join(lacking)} not found" if lacking else ""


PROGRAMS = (
    Program(
        name="python", tools=(), locks=(), command=(sys.executable, "-B", "{folder}/program.py")
    ),
    Program(
        name="go",
        tools=("go",),
        locks=("go.mod", "go.sum"),
        fetch=("go", "mod", "download"),
        build=("go", "build", "-mod=readonly", "-o", "program", "."),
        command=("{folder}/program",),
        walks_all=False,
    ),
    Program(
        name="java",
        tools=("javac", "mvn"),
        locks=("pom.xml",),
        fetch=("mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"),
        build=("mvn", "-q", "-B", "compile"),
        command=("java", "-cp", "{folder}/target/classes:{folder}/target/dependency/*", "Main"),
    ),
    Program(
        name="node",
        tools=("node", "npm"),
        locks=("package.json", "package-lock.json"),
        fetch=("npm", "ci", "--omit=optional", "--ignore-scripts", "--no-audit", "--no-fund"),
        command=("node", "{folder}/program.js"),
        walks_all=False,
    ),
)


def prepare(program: Program, builds: Path) -> list[str]:
    """The command that starts the program, once it is built below `builds`.

    Raises `FetchFailedError` and `BuildFailedError`.
    """
    folder = builds / program.name
    shutil.copytree(SOURCES / program.name, folder, dirs_exist_ok=True)
    _step(program.fetch, folder, _digest(folder, program.locks), FETCH_TIMEOUT_S, FetchFailedError)
    sources = sorted(
        str(path.relative_to(SOURCES / program.name))
        for path in (SOURCES / program.name).rglob("*")
        if path.is_file()
    )
    _step(program.build, folder, _digest(folder, sources), BUILD_TIMEOUT_S, BuildFailedError)
    return [word.format(folder=folder) for word in program.command]


def _digest(folder: Path, names: tuple[str, ...] | list[str]) -> str:
    digest = hashlib.sha256()
    for name in names:
        content = (folder / name).read_bytes()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _step(
    command: tuple[str, ...], folder: Path, digest: str, timeout_s: float, failure: type[Exception]
) -> None:
    """Run the command unless it has succeeded on the same files before."""
    if not command:
        return
    stamp = folder / f".{failure.__name__}-passed"
    if stamp.exists() and stamp.read_text() == digest:
        return
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise failure(f"{' '.join(command)}: not done within {timeout_s} s") from error
    if done.returncode != 0:
        last = "\n".join(done.stdout.splitlines()[-15:])
        raise failure(f"{' '.join(command)}: exit code {done.returncode}\n{last}")
    stamp.write_text(digest)
