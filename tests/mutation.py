"""Which share of small faults in the code of a room do its unit tests notice?

`./dev mutation ROOM` asks.  cosmic-ray makes the faults: a comparison turned round, a number
changed by one, a loop that runs no time.  A sample is drawn with a fixed seed, so two runs on the
same code try the same faults, and two sets of tests can be compared.  Each fault is made in a copy
of the tree, and the tests run until one of them fails; a run that takes three times as long as that
of whole code has noticed the fault, too.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.stamps import files_of_git

_ROOT = Path(__file__).resolve().parents[1]
_NO_FAULTS = ("core/RemoveDecorator",)
"""What a decorator changes is mostly a matter of types."""
_PYTEST = ("-m", "pytest", "-x", "-q", "-p", "no:randomly", "-p", "no:cacheprovider")
_SAME_EXAMPLES = ("--hypothesis-profile=ci", "-m", "not deep and not integration")
_WHOLE_LIMIT_S = 1_800.0
_LONGER = 3
_ALWAYS_S = 30.0


@dataclass(frozen=True, slots=True)
class Fault:
    """One small change of a module."""

    module: str
    """Its path below the top of the tree."""
    operator: str
    """cosmic-ray's name for the kind of change."""
    occurrence: int
    """The number of the place among those in the module that the operator can change."""
    line: int

    def __str__(self) -> str:
        return f"{self.module}:{self.line} {self.operator.removeprefix('core/')}"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="./dev mutation", description=__doc__.split("\n")[0])
    parser.add_argument("room", help="a folder of sources, such as producer/core")
    parser.add_argument("--tests", nargs="+", help="paths of tests; without: tests/unit/ROOM")
    parser.add_argument("--faults", type=int, default=40, help="how many are tried")
    parser.add_argument("--seed", type=int, default=1, help="which ones are drawn")
    parser.add_argument(
        "--json", action="store_true", help="print each fault and whether it was noticed"
    )
    options = parser.parse_args(arguments)
    tests = options.tests or [f"tests/unit/{options.room}"]
    for path in (options.room, *tests):
        if not (_ROOT / path).exists():
            parser.error(f"there is no {path}")
    with tempfile.TemporaryDirectory(prefix="tidegate-mutation-") as folder:
        tree = Path(folder)
        _copy_to(tree)
        noticed = _try_all(tree, _sample(tree, options.room, options.seed, options.faults), tests)
    if options.json:
        print(json.dumps({str(fault): was for fault, was in noticed.items()}, indent=2))
    else:
        print(f"{options.room}: {sum(noticed.values())} of {len(noticed)} faults noticed")
        for fault, was in noticed.items():
            if not was:
                print(f"  not noticed: {fault}")
    return 0


def _try_all(tree: Path, faults: Sequence[Fault], tests: Sequence[str]) -> dict[Fault, bool]:
    began = time.monotonic()
    passed, printed = _passes(tree, files_of(tree, tests, ""), limit_s=_WHOLE_LIMIT_S)
    whole_s = time.monotonic() - began
    if not passed:
        sys.exit(f"the tests fail on whole code:\n{printed[-3_000:]}")
    print(f"whole code: passed in {whole_s:.0f} s", file=sys.stderr)
    noticed: dict[Fault, bool] = {}
    for number, fault in enumerate(faults, 1):
        path = tree / fault.module
        text = path.read_text()
        path.write_text(_broken(text, fault))
        files = files_of(tree, tests, fault.module)
        passed, _ = _passes(tree, files, limit_s=_LONGER * whole_s + _ALWAYS_S)
        path.write_text(text)
        noticed[fault] = not passed
        said = "not noticed" if passed else "noticed"
        print(f"{number} of {len(faults)}: {said}: {fault}", file=sys.stderr, flush=True)
    return noticed


def _sample(tree: Path, room: str, seed: int, size: int) -> list[Fault]:
    """Draw faults that change what the code means, not only its annotations."""
    everything = [
        fault
        for path in sorted((tree / room).rglob("*.py"))
        for fault in _faults(path, str(path.relative_to(tree)))
    ]
    found: list[Fault] = []
    for fault in random.Random(f"{room} {seed}").sample(everything, len(everything)):
        text = (tree / fault.module).read_text()
        if len(found) < size and meaning(_broken(text, fault)) != meaning(text):
            found.append(fault)
    return found


def _faults(path: Path, module: str) -> Iterator[Fault]:
    from cosmic_ray import plugins
    from cosmic_ray.ast import ast_nodes, get_ast_from_path

    tree = get_ast_from_path(path)
    for name in sorted(plugins.operator_names()):
        operator_class = plugins.get_operator(name)
        if name in _NO_FAULTS or operator_class.arguments():
            continue
        operator = operator_class()
        positions = (
            position for node in ast_nodes(tree) for position in operator.mutation_positions(node)
        )
        for occurrence, ((line, _), _) in enumerate(positions):
            yield Fault(module, name, occurrence, line)


def _broken(text: str, fault: Fault) -> str:
    from cosmic_ray import plugins
    from cosmic_ray.mutating import mutate_code

    made = mutate_code(text, plugins.get_operator(fault.operator)(), fault.occurrence)
    return text if made is None else str(made)


def meaning(text: str) -> str | None:
    """Return the code without annotations, which nothing evaluates; None if it is not Python."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(0)
    return ast.dump(tree)


def files_of(tree: Path, tests: Sequence[str], module: str) -> list[str]:
    """Return the test files, first those that import the module: most faults end there."""
    dotted = f"tidegate.{module.removesuffix('.py').removeprefix('tidegate/').replace('/', '.')}"
    package, _, name = dotted.rpartition(".")
    found: list[tuple[bool, str]] = []
    for test in tests:
        path = tree / test
        for file in sorted(path.rglob("test_*.py")) if path.is_dir() else [path]:
            text = file.read_text()
            is_near = f"{dotted} " in text or (f"from {package} import" in text and name in text)
            found.append((not (module and is_near), str(file.relative_to(tree))))
    return [file for _, file in sorted(found)]


def _passes(tree: Path, files: Sequence[str], *, limit_s: float) -> tuple[bool, str]:
    path = os.pathsep.join([str(tree), str(tree / "spanner_simulator" / "src")])
    try:
        done = subprocess.run(
            [sys.executable, *_PYTEST, *_SAME_EXAMPLES, *files],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False, "the tests did not end in time"
    return done.returncode == 0, done.stdout


def _copy_to(tree: Path) -> None:
    for name in files_of_git(_ROOT):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(_ROOT / name, tree / name)
    # A link to a folder is not one of git's files.
    for link in (path for path in (_ROOT / "tidegate").iterdir() if path.is_symlink()):
        (tree / "tidegate" / link.name).symlink_to(link.readlink())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
