"""The programs, the list of checks and the versions in the README say the same."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from conformance.programs import PROGRAMS, FetchFailedError, Program, prepare
from conformance.report import CHECKS, ProgramReport

HERE = Path(__file__).resolve().parent
README = (HERE / "README.md").read_text()

# How a program names a check: the function, or the entry in its table.
NAMED = {
    "python": (r"^def ([a-z]\w+)\(databases: Databases\)", "*.py"),
    "go": (r'^\t\{"(\w+)", \w+\},$', "*.go"),
    "java": (r'CHECKS\.put\("(\w+)"', "*.java"),
    "node": (r"^  async (\w+)\(d\) \{$", "*.js"),
}


def walked(name: str) -> list[str]:
    """The checks in the sources of one program."""
    pattern, files = NAMED[name][0], NAMED[name][1]
    texts = [path.read_text() for path in sorted((HERE / name).rglob(files))]
    return [found for text in texts for found in re.findall(pattern, text, re.MULTILINE)]


@pytest.mark.parametrize("name", [program.name for program in PROGRAMS])
def test_a_program_has_every_check_of_the_list_once(name):
    assert sorted(walked(name)) == sorted(CHECKS)


def test_the_versions_in_the_readme_are_those_that_are_fetched():
    stated = dict(re.findall(r"^\| (\w+) \| \S+? ([\d.]+) \|$", README, re.MULTILINE))
    package = json.loads((HERE / "node" / "package.json").read_text())
    pom = (HERE / "java" / "pom.xml").read_text()

    assert stated == {
        "Go": re.search(r"go/spanner v(\S+)", (HERE / "go" / "go.mod").read_text()).group(1),
        "Java": re.search(r"google-cloud-spanner</artifactId>\s*<version>(.*?)<", pom).group(1),
        "Node": package["dependencies"]["@google-cloud/spanner"],
    }


def test_lock_files_have_hashes_and_no_addresses():
    text = (HERE / "node" / "package-lock.json").read_text()
    packages = {name: one for name, one in json.loads(text)["packages"].items() if name}

    assert packages
    assert all("integrity" in one for one in packages.values())
    assert "://" not in text


def test_a_check_that_failed_or_is_missing_or_unknown_is_a_failure():
    outcomes = dict.fromkeys(CHECKS[1:], (True, "")) | {
        CHECKS[2]: (False, "broken"),
        "odd": (True, ""),
    }
    report = ProgramReport("go", outcomes, trouble="exit code 1")

    assert report.failures == [
        "go: exit code 1",
        f"go {CHECKS[2]}: broken",
        f"go {CHECKS[0]}: not reported",
        "go odd: not listed",
    ]
    assert ProgramReport("go", trouble="no network").failures == ["go: no network"]


def test_what_was_built_is_built_again_only_when_its_sources_change(tmp_path, monkeypatch):
    sources = tmp_path / "sources"
    (sources / "toy").mkdir(parents=True)
    (sources / "toy" / "main.txt").write_text("one")
    monkeypatch.setattr("conformance.programs.SOURCES", sources)
    count = ("sh", "-c", "echo built >> log")
    toy = Program(name="toy", tools=(), locks=("main.txt",), build=count, command=("{folder}/run",))
    builds = tmp_path / "builds"
    log = builds / "toy" / "log"

    assert prepare(toy, builds) == [f"{builds / 'toy'}/run"]
    prepare(toy, builds)
    assert log.read_text() == "built\n"
    (sources / "toy" / "main.txt").write_text("two")
    prepare(toy, builds)
    assert log.read_text() == "built\nbuilt\n"


def test_packages_that_cannot_be_fetched_are_told_with_what_was_said(tmp_path, monkeypatch):
    (tmp_path / "toy").mkdir()
    monkeypatch.setattr("conformance.programs.SOURCES", tmp_path)
    toy = Program(
        name="toy", tools=(), locks=(), fetch=("sh", "-c", "echo no network; exit 3"), command=()
    )

    with pytest.raises(FetchFailedError, match="exit code 3\nno network"):
        prepare(toy, tmp_path / "builds")


def test_an_absent_toolchain_is_named():
    absent = Program(name="x", tools=("sh", "no-such-tool"), locks=(), command=())

    assert absent.missing() == "no-such-tool not found"
    assert next(one for one in PROGRAMS if one.name == "python").missing() == ""
