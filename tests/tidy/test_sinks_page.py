"""docs/sinks.md has a row for each sink; each cell names a test that holds it and exists."""

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
    assert [cell for cell in row[1:] if not re.search(r"`tests/[^`]+::test_\w+`", cell)] == []


def test_a_sink_and_its_order_mode_have_one_row():
    names = [row[0] for row in GUARANTEES]
    assert len(set(names)) == len(names)


def test_the_tests_exist():
    assert [one for one in re.findall(r"`(tests/[^`]+)`", PAGE) if is_missing(one)] == []
