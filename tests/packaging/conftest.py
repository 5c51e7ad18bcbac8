"""The wheel, built once, and programs that see the wheel or the editable install only."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGES = ("schemas", "lineage", "program", "producer", "spark_consumer", "local_stack")

DEADLINE_S = 120


@dataclass(frozen=True)
class Installed:
    """One way to have Tidegate: what must stand on the path for it, if anything."""

    name: str
    path: tuple[Path, ...]

    def run(self, code: str, *, first: tuple[Path, ...] = (), folder: Path) -> str:
        """Run `code` in a fresh Python, in `folder`, with `first` before all else; its output."""
        path = [str(entry) for entry in (*first, *self.path)]
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=folder,
            env=environ,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@pytest.fixture(scope="session")
def wheel(repository, tmp_path_factory) -> Path:
    """The wheel, built with the environment's own build backend, so without a network."""
    folder = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "build", "--wheel", "--no-isolation"),
            *("--outdir", str(folder), str(repository)),
        ],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def unpacked(wheel, tmp_path_factory) -> Path:
    """The wheel installed by pip into a folder of its own."""
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"),
            *("--target", str(folder), str(wheel)),
        ],
        check=True,
        timeout=DEADLINE_S,
        capture_output=True,
    )
    return folder


@pytest.fixture(params=["wheel", "editable"])
def installed(request) -> Installed:
    """Both ways to have Tidegate."""
    if request.param == "wheel":
        return Installed("wheel", (request.getfixturevalue("unpacked"),))
    return Installed("editable", ())
