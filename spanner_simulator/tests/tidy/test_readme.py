"""The README's examples run as they stand, and its links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import typer

from spanner_simulator.cli import app
from spanner_simulator.control.verb import verbs_of
from spanner_simulator.control.verbs import Verbs

PROJECT = Path(__file__).resolve().parents[2]

README = (PROJECT / "README.md").read_text()


def example(mark):
    (found,) = re.findall(rf"<!-- {mark} -->\n```python\n(.*?)```", README, re.DOTALL)
    return found


def run(*arguments, folder):
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(PROJECT / "src"), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_example_is_that_of_the_reference_page():
    """Which has a test that runs it."""
    page = (PROJECT / "docs" / "simulator.md").read_text()
    assert f"<!-- tested -->\n```python\n{example('tested')}```" in page


def test_the_example_for_pytest_runs(tmp_path):
    (tmp_path / "test_users.py").write_text(example("tested with pytest"))
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", folder=tmp_path)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_the_faults_are_ones_that_the_simulator_takes():
    known = verbs_of(Verbs)
    for verb, arguments in re.findall(r"^spanner\.(\w+)\((.*?)\)", README, re.MULTILINE):
        names = {one.keyword for one in known[verb.replace("_", "-")].arguments}
        assert set(re.findall(r"(\w+)=", arguments)) <= names


def test_the_flags_exist():
    flags = {name for one in typer.main.get_command(app).params for name in one.opts}
    lines = [
        line for line in README.splitlines() if "spanner-simulator --" in line or "`--" in line
    ]
    assert len(lines) == 3
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", "\n".join(lines))) <= flags


def test_links_lead_somewhere():
    targets = re.findall(r"\]\(([^)#:]+)[^)]*\)", README)
    assert targets
    assert [one for one in targets if not (PROJECT / one).exists()] == []
