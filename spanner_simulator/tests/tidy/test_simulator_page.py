"""docs/simulator.md says what the simulator does, and its example runs."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]

DOCS = PROJECT / "docs"

PAGE = (DOCS / "simulator.md").read_text()


@pytest.fixture(scope="module")
def generator():
    spec = importlib.util.spec_from_file_location("simulator", DOCS / "generate_simulator.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_tables_are_fresh(generator):
    assert generator.generated(PAGE) == PAGE, "stale: type python docs/generate_simulator.py"


def test_every_generated_table_stands_on_the_page(generator):
    assert set(re.findall(r"<!-- generated: ([a-z ]+) -->", PAGE)) == set(generator.TABLES)


def test_a_stale_page_is_mended(generator, tmp_path, capsys):
    page = tmp_path / "simulator.md"
    page.write_text(PAGE.replace("| `POST /split` |", "| `POST /cut` |"))
    generator.PAGE = page
    generator.main()
    assert page.read_text() == PAGE
    generator.main()
    assert capsys.readouterr().out.splitlines() == [
        "simulator.md: written",
        "simulator.md: up to date",
    ]


def test_the_example_runs_as_it_stands(tmp_path):
    (example,) = re.findall(r"<!-- tested -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    code = example + "\nprint(len(spanner.grpc_address) > 0)\n"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(PROJECT / "src"), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
    assert len([line for line in example.splitlines() if line.strip()]) == 10


def test_other_examples_name_arguments_that_exist():
    from spanner_simulator.control.verb import verbs_of
    from spanner_simulator.control.verbs import Verbs

    known = {one.keyword for one in verbs_of(Verbs)["add-fault"].arguments}
    for call in re.findall(r"spanner\.add_fault\((.*?)\)  ?", PAGE):
        assert set(re.findall(r"(\w+)=", call)) <= known


@pytest.mark.parametrize(
    "page",
    [
        str(path.relative_to(PROJECT))
        for path in (
            PROJECT / "README.md",
            *sorted(DOCS.rglob("*.md")),
            *(PROJECT / "tests").rglob("*.md"),
        )
    ],
)
def test_links_lead_somewhere(page):
    path = PROJECT / page
    for target in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
        assert (path.parent / target).exists(), target


def test_the_architecture_names_files_that_exist():
    text = (DOCS / "architecture.md").read_text()
    sources = PROJECT / "src" / "spanner_simulator"
    paths = re.findall(r"`((?:core|sql|server|control)/[\w/.]*)`", text)
    assert paths
    assert [path for path in paths if not (sources / path).exists()] == []
