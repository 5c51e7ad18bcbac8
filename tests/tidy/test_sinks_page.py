"""docs/sinks.md has a row for each sink, and the tests that it names exist."""

from __future__ import annotations

import re

import pytest

from tests.tidy.test_testing import REPOSITORY, is_missing
from tidegate.spark_consumer.config import SINKS

PAGE = (REPOSITORY / "docs" / "sinks.md").read_text()
ROWS = [line.strip("|").split(" | ") for line in PAGE.splitlines() if line.startswith("| ")]
GUARANTEES = [row for row in ROWS if row[0].strip() not in ("sink, order mode", "---")]


def test_each_sink_has_a_row():
    named = {re.match(r"\s*`?(\w+)", row[0])[1] for row in GUARANTEES}
    assert named == {*SINKS, "function", "own"}


@pytest.mark.parametrize("row", GUARANTEES, ids=lambda row: row[0].strip())
def test_its_guarantees_are_tested(row):
    assert len(row) == 5
    assert re.findall(r"`(tests/[^`]+)`", " ".join(row))


def test_the_tests_exist():
    assert [one for one in re.findall(r"`(tests/[^`]+)`", PAGE) if is_missing(one)] == []
