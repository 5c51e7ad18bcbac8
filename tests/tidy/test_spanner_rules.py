"""docs/spanner-rules.md names tests that exist, and at least one for each rule."""

from __future__ import annotations

import re

import pytest

from tests.tidy.test_testing import REPOSITORY, is_missing

PAGE = (REPOSITORY / "docs" / "spanner-rules.md").read_text()
ROWS = [line.strip("|").split(" | ") for line in PAGE.splitlines() if line.startswith("| ")]
RULES = [row for row in ROWS if row[0].strip() not in ("rule", "---")]


def test_the_page_has_all_sections():
    assert len(RULES) > 45
    assert all(len(row) == 3 for row in ROWS)


@pytest.mark.parametrize("row", RULES, ids=lambda row: row[0].strip()[:50])
def test_each_rule_is_tested(row):
    named = re.findall(r"`(tests/[^`]+)`", row[2])
    assert named
    assert [one for one in named if is_missing(one)] == []


def test_what_is_not_read_is_refused():
    named = re.findall(r"`(tests/[^`]+)`", PAGE.rpartition("Not read:")[2])
    assert named
    assert not any(map(is_missing, named))
