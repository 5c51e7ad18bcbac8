"""Pages of rules name the tests that are marked with them; each rule has one, each mark a rule."""

from __future__ import annotations

import importlib.util
import re
import sys

import pytest

from tests.tidy.pages import REPOSITORY, is_missing
from tidegate.producer.datastream.read_methods import read_method_of
from tidegate.spark_consumer.config import SINKS

DOCS = REPOSITORY / "docs"
DATASTREAM = (DOCS / "datastream-rules.md").read_text()

MARKED = """
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.rule("of-file")]
CASES = [1, pytest.param(2, marks=[pytest.mark.rule("of-case")])]


@pytest.mark.rule("of-class")
class TestOne:
    pytestmark = pytest.mark.rule("of-body")

    @pytest.mark.rule("of-method", "of-two")
    def test_method(self):
        pass


@pytest.mark.parametrize("a", CASES)
@pytest.mark.parametrize("b", [pytest.param(3, marks=pytest.mark.rule("of-two"))])
def test_cases(a, b):
    pass
"""
NOT_MARKED = """
@pytest.mark.rule("known")
def helper():
    @pytest.mark.rule("known")
    def test_inside():
        pass

@pytest.mark.rule(NAME)
def test_name():
    pass

@pytest.mark.rule()
class TestTwo:
    pass
"""


@pytest.fixture(scope="module")
def generator():
    spec = importlib.util.spec_from_file_location("rules", DOCS / "generate_rules.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["rules"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["rules"]


@pytest.fixture(scope="module")
def marks(generator):
    return generator.marks_of(REPOSITORY / "tests")


@pytest.fixture(scope="module")
def pages(generator):
    return {name: (DOCS / name).read_text() for name in generator.PAGES}


def test_the_pages_are_fresh(generator, marks, pages):
    stale = [name for name, text in pages.items() if generator.generated(text, marks.tests) != text]
    assert stale == [], "stale: type ./dev docs"


def test_each_mark_names_a_rule_and_each_rule_has_a_test(generator, marks, pages):
    named = {name: page for page, text in pages.items() for name in generator.rules(text)}
    every = [name for text in pages.values() for name in generator.rules(text)]

    assert generator.faults(every, marks) == []
    assert len(every) > 140
    tests = {test for found in marks.tests.values() for test in found}
    assert [test for test in sorted(tests) if is_missing(test)] == []
    # Names begin with the subject of their page.
    subjects = dict(zip(generator.PAGES, ("P", "spanner-", "datastream-", "sink-"), strict=True))
    assert [name for name, page in named.items() if not name.startswith(subjects[page])] == []


def test_each_row_of_a_page_is_a_rule_and_has_all_cells(generator, pages):
    """But for what is not covered, which has a reason in place of a test."""
    written = [generator.without_sinks(text) for text in pages.values()]
    covered = [text.partition("## Not covered")[0] for text in written]
    rows = [line for text in covered for line in text.splitlines() if line.startswith("| ")]
    heads = [row for row in rows if row.startswith(("| rule |", "| --- |"))]

    assert len(rows) - len(heads) == sum(len(generator.rules(text)) for text in covered)
    assert {row.count(" | ") for row in rows} == {2, 3, 6}
    assert "`tests/" not in DATASTREAM.partition("## Not covered")[2]


def test_rules_are_those_of_the_front_page_of_the_sinks_and_of_the_read_methods(pages):
    readme = (REPOSITORY / "README.md").read_text()
    promises = re.findall(r"^\| (P\d) \| (.+) \|$", readme, re.MULTILINE)
    text = pages["reference/promises.md"]
    assert promises == re.findall(r"^\| `(P\d)` \| (.+?) \| `", text, re.MULTILINE)
    assert len(promises) == 7

    table = pages["sinks.md"].partition("## Shared")[0]
    sinks = re.findall(r"^\| `sink-[\w-]+` \| ([^|]+?) \|", table, re.MULTILINE)
    assert {re.match(r"`?(\w+)", sink)[1] for sink in sinks} == {*SINKS, "function", "own"}
    assert len({*sinks}) == len(sinks)

    sources = "mysql|oracle|postgres|postgresql|sqlserver|salesforce"
    methods = {*re.findall(rf"`((?:{sources})-[^`]+)`", DATASTREAM)}
    assert len(methods) >= 10
    assert [method for method in methods if read_method_of(method) is None] == []


def test_marks_are_those_that_pytest_sees(generator):
    found = generator.Marks()
    generator.collect(MARKED, "tests/test_a.py", found)

    assert found.faults == []
    assert dict(found.tests) == {
        "of-file": ["tests/test_a.py"],
        "of-class": ["tests/test_a.py::TestOne"],
        "of-body": ["tests/test_a.py::TestOne"],
        "of-method": ["tests/test_a.py::TestOne::test_method"],
        "of-two": ["tests/test_a.py::TestOne::test_method", "tests/test_a.py::test_cases"],
        "of-case": ["tests/test_a.py::test_cases"],
    }


def test_all_faults_are_listed(generator):
    found = generator.Marks()
    generator.collect(NOT_MARKED, "tests/test_b.py", found)
    generator.collect('pytestmark = pytest.mark.rule("known")', "tests/helper.py", found)
    generator.collect('pytestmark = pytest.mark.rule("other")', "tests/test_c.py", found)

    assert sorted(generator.faults(["known", "twice", "twice"], found)) == [
        "known: no test shows this rule",
        "tests/helper.py:1: this mark is on no test",
        "tests/test_b.py:12: a mark takes names of rules, as texts",
        "tests/test_b.py:2: this mark is on no test",
        "tests/test_b.py:4: this mark is on no test",
        "tests/test_b.py:8: a mark takes names of rules, as texts",
        "tests/test_c.py: no rule is named other",
        "twice: no test shows this rule",
        "twice: two rules have this name",
    ]


def test_a_row_has_its_tests_and_other_tables_are_left_alone(generator):
    page = (
        "| rule | says | test |\n| --- | --- | --- |\n| `a` | a `b` | `old` |\n\n| `a` | x | y |\n"
    )
    tests = {"a": ["tests/test_a.py", "tests/test_b.py::test_b"]}

    assert generator.rules(page) == ["a"]
    assert generator.generated(page, tests) == page.replace(
        "`old`", "`tests/test_a.py`<br>`tests/test_b.py::test_b`"
    )
