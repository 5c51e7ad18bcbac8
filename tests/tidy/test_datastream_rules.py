"""docs/datastream-rules.md names tests that exist, and at least one for each rule that is covered.

Rules that are not covered stand in the last section, without a test.
"""

from __future__ import annotations

import re

import pytest

from tests.tidy.test_testing import REPOSITORY, is_missing
from tidegate.producer.datastream.read_methods import read_method_of

PAGE = (REPOSITORY / "docs" / "datastream-rules.md").read_text()
COVERED, _, NOT_COVERED = PAGE.partition("## Not covered")
HEADS = ("rule", "---")


def rows(text: str) -> list[list[str]]:
    cells = [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [row for row in cells if row[0].strip() not in HEADS]


def test_the_page_has_all_sections():
    sections = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
    assert sections == [
        "Hierarchy",
        "Event data",
        "Generic metadata",
        "Source-specific metadata",
        "Event flow",
        "Ordering",
        "Consistency",
        "Publishing",
        "Discover",
        "States and errors",
        "Files",
        "Files that Tidegate writes",
        "Not covered",
    ]
    assert len(rows(COVERED)) > 35
    assert all(len(row) == 3 for row in rows(COVERED))


@pytest.mark.parametrize("row", rows(COVERED), ids=lambda row: row[0].strip()[:50])
def test_each_rule_is_tested(row):
    named = re.findall(r"`(tests/[^`]+)`", row[2])
    assert named
    assert [one for one in named if is_missing(one)] == []


def test_what_is_not_covered_has_its_reason_and_no_test():
    assert len(rows(NOT_COVERED)) >= 5
    assert all(len(row) == 2 for row in rows(NOT_COVERED))
    assert "`tests/" not in NOT_COVERED


def test_read_methods_of_the_page_are_known():
    named = set(re.findall(r"`((?:mysql|oracle|postgres|postgresql|sqlserver|salesforce)-[^`]+)`",
                           PAGE))  # fmt: skip
    assert len(named) >= 10
    assert [one for one in named if read_method_of(one) is None] == []
