"""What a step's tests can depend on, as one hash: `./dev ci` leaves out steps whose hash is known.

A step covers the files in its folders, everything that these import, directly or not, the data
below the folders of all these, the pages that they name, and the folders of the programs that its
tests start.  A step that has passed leaves its hash in `.ci/tested/`; committed, it says that
nothing which the step covers has changed since.

Standard library only: `dev` imports this module before anything is installed.
"""

from __future__ import annotations

import ast
import hashlib
import json
import subprocess
import tomllib
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

# Imported names, each with the folder that holds what is below it.
_PACKAGES = {
    # Its packages are links; only its version is a module beside them.
    "tidegate": "",
    "tests": "tests/",
    "benchmarks": "benchmarks/",
    "spanner_simulator": "spanner_simulator/src/spanner_simulator/",
}
# The environment: what is installed, what each test file shares.
_SHARED = ("requirements/dev.txt", "accelerator")
# Of pyproject.toml: other tables are about style, types and wheels.
_SETTINGS = ("project", "dependency-groups")


class Stamps:
    """The steps of one checkout that have passed.

    Without git no step counts as tested, and none is noted.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._imports: dict[str, set[str]] = {}

    def is_tested(self, step: str, digest: str | None) -> bool:
        """Whether the step has passed with all that it covers as it is on disk."""
        stamp = self._stamp(step)
        return digest is not None and stamp.exists() and stamp.read_text().strip() == digest

    def write(self, step: str, digest: str | None) -> None:
        """Note that the step has passed as a whole; `digest` is that of when it began."""
        if digest is not None:
            stamp = self._stamp(step)
            stamp.parent.mkdir(parents=True, exist_ok=True)
            stamp.write_text(f"{digest}\n")

    def digest(self, folders: Iterable[str], selection: str) -> str | None:
        """Return the hash of all that a step covers, and of how it selects its tests.

        None without git.
        """
        if not self._files:
            return None
        found = hashlib.sha256(f"{selection} {self._settings()}".encode())
        for path in self.covered(folders):
            content = hashlib.sha256((self._root / path).read_bytes()).hexdigest()
            found.update(f"{path} {content}\n".encode())
        return found.hexdigest()

    def covered(self, folders: Iterable[str]) -> list[str]:
        """Return the paths of all files that the tests and programs in `folders` can depend on.

        A conftest.py above a test file is imported with it.
        """
        places = (*folders, *_SHARED)
        todo = {path for path in self._files if any(_is_in(path, place) for place in places)}
        todo |= {
            path
            for path in self._files
            if path.endswith("conftest.py")
            and any(_is_in(place, path.rpartition("/")[0]) for place in places)
        }
        found: set[str] = set()
        while todo:
            path = todo.pop()
            found.add(path)
            todo |= self._imported(path) - found
        folders_read = tuple({path.rpartition("/")[0] for path in found if path.endswith(".py")})
        data = {path for path in self._files if not path.endswith((".py", ".md"))}
        return sorted(
            found | {path for path in data if any(_is_in(path, one) for one in folders_read)}
        )

    def _settings(self) -> str:
        project = self._root / "pyproject.toml"
        tables = tomllib.loads(project.read_text()) if project.exists() else {}
        pytest = tables.get("tool", {}).get("pytest")
        return json.dumps([pytest, *(tables.get(name) for name in _SETTINGS)], sort_keys=True)

    def _stamp(self, step: str) -> Path:
        return self._root / ".ci" / "tested" / step.replace(" ", "-")

    @cached_property
    def _files(self) -> frozenset[str]:
        return frozenset(files_of_git(self._root))

    def _imported(self, path: str) -> set[str]:
        """Return the files that a module imports, at any depth of it, and their packages.

        With them the files that it names, as a test names the page whose program it runs.
        """
        if not path.endswith(".py"):
            return set()
        if path not in self._imports:
            named: set[str] = set()
            files: set[str] = set()
            for node in ast.walk(ast.parse((self._root / path).read_text())):
                if isinstance(node, ast.Import):
                    named |= {alias.name for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module is not None:
                    # A name may be a module of the package, or something in it.
                    named |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
                elif isinstance(node, ast.Constant) and node.value in self._files:
                    files.add(node.value)
            self._imports[path] = files.union(*(self._modules(name) for name in named))
        return self._imports[path]

    def _modules(self, name: str) -> set[str]:
        top, *parts = name.split(".")
        if top not in _PACKAGES:
            return set()
        place = _PACKAGES[top]
        found = {f"{place}__init__.py"} if place else {"tidegate/__init__.py"}
        if top == "tidegate" and parts[:1] == ["version"]:
            place = "tidegate/"
        for part in parts:
            found |= {f"{place}{part}/__init__.py", f"{place}{part}.py"}
            place = f"{place}{part}/"
        return found & self._files


def files_of_git(root: Path) -> list[str]:
    """Return all files that git knows or would add: none that a tool has made; [] without git."""
    try:
        done = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return []
    return [name for name in done.stdout.split("\0") if name and (root / name).is_file()]


def _is_in(path: str, place: str) -> bool:
    return not place or path == place or path.startswith(f"{place}/")
