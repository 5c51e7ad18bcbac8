"""Every command and program that README and docs print works as printed."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.tidy.printed_commands import PAGES, REPOSITORY, Block, blocks, blocks_in

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
SIMULATOR = tomllib.loads((REPOSITORY / "spanner_simulator" / "pyproject.toml").read_text())
EXTRAS = {
    "tidegate": PROJECT["optional-dependencies"],
    SIMULATOR["project"]["name"]: SIMULATOR["project"]["optional-dependencies"],
}
LOCKED = frozenset(
    re.findall(r"^(\S+==\S+)", (REPOSITORY / "requirements/dev.txt").read_text(), re.MULTILINE)
)
TARGETS = frozenset(
    re.findall(r'^    "([a-z-]+)": "', (REPOSITORY / "dev").read_text(), re.MULTILINE)
)

# Programs of the machine: the tests do not check their options.
FOREIGN = frozenset({"cd", "curl", "docker", "export", "gcloud", "git", "spark-submit"})

# Options of make that ./dev knows under another name.
VARIABLES = frozenset({"ARGS", "MINUTES", "SEED", "SEEDS"})

SHELL = blocks("sh")
PYTHON = blocks("python")


def name_of(block: Block) -> str:
    return f"{block.page}:{block.line}"


def faults(command: list[str]) -> list[str]:
    """Return what is wrong with a command, without running it."""
    program, *arguments = command
    program = program.removeprefix(".venv/bin/")
    match program:
        case "./dev" | "make":
            return _dev_faults(arguments)
        case "pip":
            return _pip_faults(arguments)
        case "pytest":
            return _path_faults(arguments)
        case "python" if arguments[:1] == ["-m"]:
            return [] if find_spec(arguments[1]) else [f"no module {arguments[1]}"]
        case "python":
            return _path_faults(arguments)
        case _ if program in PROJECT["scripts"]:
            return _program_faults(program, arguments)
        case _ if program in FOREIGN or program.partition("=")[0].isupper():
            return []
        case _:
            return [f"unknown program {program}: let {__name__} check it"]


def _dev_faults(arguments: list[str]) -> list[str]:
    targets = [one for one in arguments if one[0] != "-" and "=" not in one][:1]
    variables = [one.partition("=")[0] for one in arguments if "=" in one and one[0] != "-"]
    return [
        *(f"no target {target}" for target in targets if target not in TARGETS),
        *(f"no variable {name}" for name in variables if name not in VARIABLES),
    ]


def _pip_faults(arguments: list[str]) -> list[str]:
    found = []
    for wanted in arguments[1:]:
        name, _, extras = wanted.rstrip("]").partition("[")
        known = EXTRAS.get(name)
        if wanted[0] == "-" or (REPOSITORY / wanted / "pyproject.toml").exists():
            continue
        if "==" in wanted:
            found += [] if wanted in LOCKED else [f"{wanted} is not the lock's version"]
            continue
        if known is None:
            found.append(f"no distribution {name} of this repository")
        else:
            found += [f"{name} has no extra {e}" for e in extras.split(",") if e and e not in known]
    return found


def _path_faults(arguments: list[str]) -> list[str]:
    paths = [one.partition("::")[0] for one in arguments if "/" in one]
    return [f"no file {path}" for path in paths if not (REPOSITORY / path).exists()]


def _program_faults(program: str, arguments: list[str]) -> list[str]:
    """Let the real command line read the options; `--help` keeps it from doing more."""
    module = importlib.import_module(PROJECT["scripts"][program].partition(":")[0])
    result = CliRunner().invoke(module.app, [*arguments, "--help"])
    return [] if result.exit_code == 0 else [result.output]


@pytest.mark.parametrize("block", SHELL, ids=name_of)
def test_every_printed_command_is_one(block: Block):
    assert {" ".join(c): wrong for c in block.commands() if (wrong := faults(c))} == {}


@pytest.mark.parametrize("block", PYTHON, ids=name_of)
def test_every_printed_program_compiles(block: Block):
    compile(block.content, name_of(block), "exec")


@pytest.mark.parametrize("block", [one for one in PYTHON if one.runs], ids=name_of)
def test_a_program_that_is_marked_runs(block: Block, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", block.content],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_names_its_language(page):
    """A block without one is not checked."""
    fences = re.findall(r"^ *```(\w*)$", page.read_text(), re.MULTILINE)

    assert [n for n, language in enumerate(fences) if bool(language) == bool(n % 2)] == []


def test_hadoop_has_the_version_of_sparks_own():
    """`s3a://` needs the same version of all of Hadoop."""
    pyspark = pytest.importorskip("pyspark")
    jars = Path(pyspark.__file__).parent / "jars"
    printed = {
        version
        for page in PAGES
        for version in re.findall(r"hadoop-aws:([\d.]+\d)", page.read_text())
    }

    assert {f"hadoop-client-api-{v}.jar" for v in printed} == {
        jar.name for jar in jars.glob("hadoop-client-api-*.jar")
    }


def test_the_testing_page_names_files_that_exist():
    page = (REPOSITORY / "docs/testing.md").read_text()
    named = set(re.findall(r"`([\w/]+\.(?:py|txt))`", page))
    folders = ("", "tests/simulation/", "tests/integration/", "tests/chaos/producer/")

    assert [
        name for name in sorted(named) if not any((REPOSITORY / f / name).exists() for f in folders)
    ] == []


def test_there_is_something_to_check():
    assert {"README.md", "CONTRIBUTING.md"} <= {block.page for block in SHELL}
    assert any(block.runs for block in PYTHON)


@pytest.mark.parametrize(
    "line",
    [
        "./dev nonsense",
        "make sim SEEDING=3",
        'pip install "tidegate[nonsense]"',
        "pip install nonsense",
        "pip install delta-spark==1.0.0",
        "pytest tests/nonsense.py",
        "python -m tidegate_nonsense",
        "python docs/nonsense.py",
        "nonsense --help",
        "tidegate-producer nonsense",
        "tidegate-producer run --nonsense 3",
        ".venv/bin/tidegate-local up --nonsense",
    ],
)
def test_a_wrong_command_is_found(line):
    (block,) = blocks_in(f"```sh\n{line}  # a comment\n```\n", page="x.md")

    assert [faults(command) for command in block.commands()] != [[]]


def test_a_block_in_a_list_is_found():
    (block,) = blocks_in("1. Do this:\n\n    ```sh\n    x --y\n    ```\n", page="x.md")

    assert (block.content, block.commands()) == ("x --y\n", [["x", "--y"]])


def test_blocks_are_found_with_their_mark_and_line():
    text = "a\n\n<!-- runs -->\n```sh\nx --y \\\n  z   # c\n```\n\n```python\n1\n```\n"
    first, second = blocks_in(text, page="x.md")

    assert (first.line, first.language, first.runs) == (3, "sh", True)
    assert first.commands() == [["x", "--y", "z"]]
    assert (second.language, second.runs, second.content) == ("python", False, "1\n")
