"""Rules of the repository that no other tool checks: sizes, words, paths, pins, and hints."""

from __future__ import annotations

import ast
import importlib
import re
from collections import Counter
from pathlib import Path

from tests.remedies import BY_VALUE, DONE, GENERAL, RESET, RESTARTED, WITHOUT
from tests.tidy.pages import REPOSITORY, is_missing, shown
from tidegate.lineage import errors as lineage_errors
from tidegate.schemas import errors as shared_errors
from tidegate.schemas.errors import InvariantViolation, SchemaError, TidegateError
from tidegate.spark_consumer import errors as consumer_errors

PACKAGES = ("schemas", "lineage", "program", "producer", "spark_consumer", "local_stack")

# A namespace, not an address: nothing is fetched from it.
NAMESPACES = ("http://ant.apache.org/ivy/maven",)


def files(*names: str, suffixes: tuple[str, ...]) -> list[Path]:
    """Return the files below folders, without those that a tool has made."""
    found = []
    for name in names:
        top = REPOSITORY / name
        found += sorted(top.rglob("*")) if top.is_dir() else [top]
    return [
        path
        for path in found
        if path.is_file()
        and path.suffix in suffixes
        and not any(
            part == "__pycache__" or part.startswith(".")
            for part in path.relative_to(REPOSITORY).parts[1:]
        )
    ]


SOURCES = files(
    *PACKAGES, "accelerator", "tests", "docker", "spanner_simulator", suffixes=(".py", ".c", ".h")
)


def test_no_module_is_too_long_to_read():
    lengths = {shown(path): len(path.read_text().splitlines()) for path in SOURCES}
    limits = {name: 900 if "tests" in Path(name).parts else 500 for name in lengths}

    assert {name: n for name, n in lengths.items() if n > limits[name]} == {}


def test_no_reminders_and_no_paths_of_one_machine_are_left():
    reminder = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX)\b")
    machine = (f"{REPOSITORY}/", f"{Path.home()}/")
    folders = (*PACKAGES, "accelerator", "docs", "docker", "requirements", "spanner_simulator")
    paths = [
        *SOURCES,
        *files(*folders, suffixes=(".md", ".xml", ".avsc", ".txt")),
        *(REPOSITORY / name for name in ("dev", "Makefile", "pyproject.toml", ".ci/run")),
    ]
    texts = {shown(path): path.read_text() for path in paths}

    assert [name for name, text in texts.items() if reminder.search(text)] == []
    assert [name for name, text in texts.items() if any(path in text for path in machine)] == []


def test_no_registry_address_is_pinned_and_each_requirement_has_a_hash():
    others = ("local_stack/parts/ivy.xml", "benchmarks/peers/ivy.xml", "pyproject.toml")
    others += ("spanner_simulator/pyproject.toml", "accelerator/pyproject.toml")
    paths = files("requirements", *others, suffixes=(".txt", ".in", ".xml", ".toml"))
    addresses = {
        (shown(path), address)
        for path in paths
        for address in re.findall(r"https?://[^\s\"'>]+", path.read_text())
    }
    assert {address for address in addresses if address[1] not in NAMESPACES} == set()

    text = (REPOSITORY / "requirements" / "dev.txt").read_text()
    pins = re.findall(r"^[a-z0-9][\w.-]*(?:\[[^\]]*\])?==\S+.*\\$", text, re.MULTILINE)
    assert len(pins) == len(re.findall(r"^[a-z0-9]", text, re.MULTILINE)) > 50
    # The simulator is installed from its folder, at the commit that is checked out.
    pattern = r"^spanner-simulator.*|^.*file:.*|^-e.*|^--(?:index-url|find-links).*"
    assert re.findall(pattern, text, re.MULTILINE) == []


def test_docker_and_tests_are_no_packages():
    """A package `docker` would shadow the Docker SDK for all with the repository on their path."""
    assert [shown(path) for path in files("docker", "tests", suffixes=(".py",))
            if path.name == "__init__.py"] == []  # fmt: skip


# ---------------------------------------------------------------- words

# Files and folders whose texts are plain.
HELD = (
    "CHANGELOG.md", "CONTRIBUTING.md", "README.md", "SECURITY.md", "benchmarks", "docker", "dev",
    "docs", "local_stack", "producer", "schemas", "spanner_simulator/CHANGELOG.md",
    "spanner_simulator/README.md", "spanner_simulator/docs", "spanner_simulator/src",
    "spark_consumer", "tests", "tidegate/__init__.py", "lineage", "program",
    "tidegate/version.py",
)  # fmt: skip

# Each with what to write instead.
PHRASES = {
    r"anew": "again, or re-create, rebuild, rejoin",
    r"whoever": "name who: the operator, the process, the reader",
    r"who asks": "name the client",
    r"told|is not said|said nothing": "reported, printed, logged",
    r"tells? of": "describes, reports",
    r"mend(s|ed|ing)?": "fix",
    r"let(s|ting)? go( of)?": "release",
    r"(can|could|cannot|may|might) be had|to be had": "is available, failed to get",
    r"speaks? for": "covers, applies to",
    r"(belongs?|cost|known?) (to )?nobody": "is unassigned, costs nothing",
    r"nobody (knows|has|else|is|was|can|could|may|looks|asks)": "name who does not",
    r"(?<!there )(is|are|was|were|be) none(?! of)": "is not one, is invalid",
    r"hears? of|heard of": "is notified of",
    r"wants? to know": "requires",
    r"signs? for": "claims",
    r"unasked": "without a request",
    r"in vain": "without success; say what did not happen",
    r"what (has|have)? ?(came|come|comes|became|become) of": "the result of",
    r"makes? (nothing|something|much) of": "ignores, uses",
    r"for ever": "forever, permanently",
    r"homeless|worn|insist": "a standard word",
    r"see the (module|class)\.": "the contract itself",
    r"takes? back what": "moves backwards",
    r"throws? out|thrown out": "removed, fenced",
    r"goes? wrong": "fails",
    r"as it should": "say what is expected",
    r"the log says": "the log shows",
    r"of (our|its|his) own (accord|will)": "by itself",
}


PATTERN = re.compile(rf"\b({'|'.join(PHRASES)})(?!\w)", re.IGNORECASE)


def phrases_in(text: str) -> list[str]:
    """Return the phrases of a text to avoid, each with its line.

    Line breaks count as spaces, and so do the underscores of a name.
    """
    # Python's None is not the word.
    joined = re.sub(r"\s*\n\s*(#:? |\| )?", lambda found: " " * len(found[0]), text)
    joined = joined.replace("None", "null").replace("_", " ")
    return [
        f"line {text.count(chr(10), 0, found.start()) + 1}: {' '.join(found[0].split())}"
        for found in PATTERN.finditer(joined)
    ]


def test_texts_are_plain():
    """Say what happened, then what to do.

    A phrase in a name ends up in a log line sooner or later.
    """
    found = {
        shown(path): phrases_in(path.read_text())
        for path in files(*HELD, suffixes=(".md", ".py", ".txt", ""))
        if path.name != "test_tidy.py"
    }

    assert {name: one for name, one in found.items() if one} == {}


def test_phrases_are_found_and_other_words_are_not():
    texts = ("made anew", "The slots belong to\nnobody.", "# it is told what\n    # to do",
             "A file among them is none.", "no id could be had", "fail_told = 'is told'",
             "def test_a_lost_session_is_made_anew():", "self.let_go.wait()", "Mend these",
            )  # fmt: skip
    assert [text for text in texts if not phrases_in(text)] == []
    texts = ("is none of them", "x is None", "if there is none", "goals", "amendment",
             "recommend", "letting")  # fmt: skip
    assert [text for text in texts if phrases_in(text)] == []
    assert phrases_in("one\ntwo\nthree anew\n") == ["line 3: anew"]


# ---------------------------------------------------------------- hints

HINTED = PACKAGES
TABLES = (DONE, RESET, RESTARTED, BY_VALUE, WITHOUT)
SAID_ELSEWHERE = (InvariantViolation, SchemaError, consumer_errors.RunStopped)
"""A bug, bytes that are described by their place, and what ends a run that is stopping anyway."""


def calls(path: Path) -> list[tuple[str, bool, int]]:
    """Return the name, whether there is a hint, and the line of each call."""
    return [
        (
            getattr(node.func, "id", ""),
            any(keyword.arg == "hint" for keyword in node.keywords),
            node.lineno,
        )
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
    ]


def error_classes() -> set[str]:
    """Return the names of all errors but the general ones and the root."""
    for path in files(*HINTED, suffixes=(".py",)):
        if path.name.endswith("errors.py") or "Error):  # noqa: N818" in path.read_text():
            name = ".".join(path.relative_to(REPOSITORY).with_suffix("").parts)
            importlib.import_module(f"tidegate.{name.removeprefix('tidegate.')}")
    found, queue = set(), [TidegateError]
    while queue:
        kind = queue.pop()
        queue += kind.__subclasses__()
        if kind.__module__.startswith("tidegate."):
            found.add(kind.__name__)
    return found - GENERAL - {"TidegateError"}


def test_each_hint_has_one_row_and_no_row_is_of_another():
    """A row has a test that carries the hint out, or why there is no test."""
    rows = Counter(name for table in TABLES for name in table)
    places = {
        shown(path)
        for path in files(*HINTED, suffixes=(".py",))
        for name, is_hinted, _ in calls(path)
        if name in GENERAL and is_hinted
    }
    needed = error_classes() | places
    assert sorted(needed - set(rows)) == [], "add a row to tests/remedies.py"
    assert sorted(set(rows) - needed) == [], "remove the row from tests/remedies.py"
    assert [name for name, count in rows.items() if count > 1] == []
    named = {test for tests in DONE.values() for test in tests}
    named |= {*RESET.values(), *RESTARTED.values()}
    assert [test for test in sorted(named) if is_missing(test)] == []


def test_no_error_of_the_consumer_is_without_a_hint():
    modules = (consumer_errors, lineage_errors, shared_errors)
    kinds = {
        name: kind
        for module in reversed(modules)
        for name, kind in vars(module).items()
        if isinstance(kind, type) and issubclass(kind, TidegateError)
    }
    without = [
        f"{shown(path)}:{line}: {name}"
        for path in files("spark_consumer", suffixes=(".py",))
        for name, is_hinted, line in calls(path)
        if name in kinds and not is_hinted and not issubclass(kinds[name], SAID_ELSEWHERE)
    ]
    assert without == []
