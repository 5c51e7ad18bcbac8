"""What a step's stamp covers: all that its tests can depend on, and no more."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lanes import STEPS, Selection
from tests.stamps import Stamps

REPOSITORY = Path(__file__).resolve().parents[2]

# A pytest run that prints the files of all modules which its test files import, as JSON.
COLLECT = """
import json, sys
import pytest

class Printer:
    def pytest_configure(self, config):
        # Installed plugins of pytest are imported whatever the tests are.
        self.before = {*sys.modules}

    def pytest_collection_finish(self, session):
        modules = [module for name, module in sys.modules.items() if name not in self.before]
        files = [getattr(module, "__file__", None) for module in modules]
        print("imported " + json.dumps([name for name in files if name]))

sys.exit(pytest.main(["--collect-only", "-q", "-p", "no:xdist", *sys.argv[1:]], [Printer()]))
"""

SOURCES = {
    "tests/spark/test_a.py": (
        "from tests import helper\nimport tidegate.spark_consumer.gate\nPAGE = 'notes/page.md'\n"
    ),
    "tests/helper.py": "def later():\n    from tidegate.lineage.frontier import Frontier\n",
    "tests/conftest.py": "import tests.shared\n",
    "tests/shared.py": "",
    "tests/spark/table.avro": "x",
    "tests/unit/test_b.py": "",
    "tidegate/__init__.py": "",
    "lineage/__init__.py": "",
    "lineage/frontier.py": "import os\n",
    "spark_consumer/__init__.py": "",
    "spark_consumer/gate.py": "from tidegate.schemas import codec\n",
    "schemas/__init__.py": "",
    "schemas/codec.py": "",
    "schemas/avro/v1.avsc": "{}",
    "schemas/other.py": "",
    "producer/__init__.py": "",
    "producer/worker.py": "",
    "requirements/dev.txt": "pytest\n",
    "pyproject.toml": "[project]\nversion = '1'\n[tool.ruff]\nline-length = 100\n",
    "notes/page.md": "",
    "notes/other.md": "",
    "tests/results.md": "",
}

CONSUMER = ("tests/spark", "spark_consumer")


@pytest.fixture
def tree(tmp_path) -> Path:
    for name, text in SOURCES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path


def test_a_stamp_covers_what_is_imported_and_nothing_else(tree):
    assert set(SOURCES) - {*Stamps(tree).covered(CONSUMER)} == {
        "tests/unit/test_b.py",
        "schemas/other.py",
        "producer/__init__.py",
        "producer/worker.py",
        # Its tables about what is installed are compared.
        "pyproject.toml",
        "notes/other.md",
        "tests/results.md",
    }


@pytest.mark.parametrize(
    ("name", "text", "is_tested"),
    [
        ("schemas/codec.py", "1\n", False),
        ("lineage/frontier.py", "1\n", False),
        ("tests/shared.py", "1\n", False),
        ("tests/spark/table.avro", "y", False),
        ("schemas/avro/v1.avsc", "[]", False),
        ("tests/spark/test_new.py", "", False),
        ("spark_consumer/__main__.py", "", False),
        ("requirements/dev.txt", "pytest>=8\n", False),
        ("pyproject.toml", "[project]\nversion = '2'\n", False),
        ("pyproject.toml", "[project]\nversion = '1'\n[tool.ruff]\nline-length = 99\n", True),
        ("producer/worker.py", "1\n", True),
        ("notes/page.md", "1\n", False),
        ("notes/other.md", "1\n", True),
    ],
)
def test_a_step_counts_as_tested_until_something_that_it_covers_changes(
    tree, name, text, is_tested
):
    def digest(selection="not slow"):
        return Stamps(tree).digest(CONSUMER, selection)

    Stamps(tree).write("spark", digest())
    assert Stamps(tree).is_tested("spark", digest())
    assert not Stamps(tree).is_tested("slow spark", digest())
    assert not Stamps(tree).is_tested("spark", digest("slow"))

    (tree / name).write_text(text)

    assert Stamps(tree).is_tested("spark", digest()) == is_tested


def test_without_git_nothing_counts_as_tested(tree, monkeypatch):
    Stamps(tree).write("spark", Stamps(tree).digest(CONSUMER, ""))
    monkeypatch.setenv("GIT_DIR", str(tree / "nowhere"))

    assert not Stamps(tree).is_tested("spark", Stamps(tree).digest(CONSUMER, ""))


STAMPED = {
    step.paths: step.programs
    for step in STEPS.values()
    if isinstance(step, Selection) and step.programs is not None
}


@pytest.mark.parametrize("paths", STAMPED)
def test_what_a_step_covers_includes_every_module_that_its_tests_import(paths):
    """Also those that a test file, or a module of it, imports by their names only."""
    if paths == STEPS["simulator"].paths:
        pytest.skip("its stamp covers the whole folder")
    done = subprocess.run(
        [sys.executable, "-c", COLLECT, *paths],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    (line,) = (one for one in done.stdout.splitlines() if one.startswith("imported "))
    folder = Path(sys.prefix)
    places = [Path(name).resolve() for name in json.loads(line.removeprefix("imported "))]
    ours = {
        str(place.relative_to(REPOSITORY))
        for place in places
        if place.is_relative_to(REPOSITORY) and not place.is_relative_to(folder)
    }

    assert len(ours) > 50
    assert ours - {*Stamps(REPOSITORY).covered((*paths, *STAMPED[paths]))} == set()
