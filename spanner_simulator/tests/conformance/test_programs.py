"""The programs, the list of checks and the versions in the README say the same."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from conformance.programs import PROGRAMS
from conformance.report import ProgramReport, checks_of

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
    program = next(one for one in PROGRAMS if one.name == name)
    assert sorted(walked(name)) == sorted(checks_of(program))


def test_the_versions_in_the_readme_are_those_that_are_fetched():
    stated = dict(re.findall(r"^\| (\w+) \| \S+? ([\d.]+) \|$", README, re.MULTILINE))
    package = json.loads((HERE / "node" / "package.json").read_text())
    pom = (HERE / "java" / "pom.xml").read_text()
    assert stated == {
        "Go": re.search(r"go/spanner v(\S+)", (HERE / "go" / "go.mod").read_text()).group(1),
        "Java": re.search(r"google-cloud-spanner</artifactId>\s*<version>(.*?)<", pom).group(1),
        "Node": package["dependencies"]["@google-cloud/spanner"],
    }


def test_a_check_that_failed_or_is_missing_or_unknown_is_a_failure():
    go = next(one for one in PROGRAMS if one.name == "go")
    missing, broken, *rest = checks_of(go)
    outcomes = dict.fromkeys(rest, (True, "")) | {broken: (False, "broken"), "odd": (True, "")}
    report = ProgramReport(go, outcomes, trouble="exit code 1")
    assert report.failures == [
        *("go: exit code 1", f"go {broken}: broken"),
        *(f"go {missing}: not reported", "go odd: not listed"),
    ]
    assert ProgramReport(go, trouble="no network").failures == ["go: no network"]
