"""The figures of `status` as tables: rows are lines, and none is wider than the terminal."""

from io import StringIO

import pytest
from rich.console import Console

from tidegate.spark_consumer.commands.status_table import tables_of

TOKEN = "__8BAYE" + "t" * 300
OUTPUT = "/lake/" + "deep/" * 40
FIGURES = {
    "prefix": "bank",
    "watermark": "2026-11-22T10:00:00.123456+00:00",
    "lag_s": 1.25,
    "begins": {"mine": 7},
    "left_out": {},
    "topics": ["bank.accounts", "bank.[red]ledger"],
    "output": OUTPUT,
    "complete_from_us": None,
    "slots": [
        {
            "slot": slot,
            "worker": worker,
            "slowest": TOKEN,
            "watermark": "2026-11-22T10:00:00.123456+00:00",
            "lag_s": 0.5,
        }
        for slot, worker in ((11, "tidegate-producer-10"), (3, None))
    ],
    "gaps": [
        {
            "token": TOKEN,
            "from_us": 1_000_000,
            "until_us": 2_500_000,
            "accepted_by": "ops",
            "accepted_us": 3_000_000,
        }
    ],
    "last_releases": [
        {
            "release": 100_000,
            "batch": 90_000,
            "through": "2026-11-22T10:00:00+00:00",
            "changes": 500_000,
            "copies": 12,
            "mismatches": 0,
        }
    ],
}


def shown(width, **changes):
    console = Console(width=width, record=True, file=StringIO())
    for table in tables_of({**FIGURES, **changes}):
        console.print(table)
    return console.export_text().splitlines()


@pytest.mark.parametrize("width", [80, 100, 160])
def test_no_line_is_wider_than_the_terminal_and_no_row_has_two(width):
    lines = shown(width)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    for row in ("tidegate-producer-10", "2026-11-22T10:00:00.123456Z", "100000", "90000", "ops"):
        assert row in text
    # A head, a row each and five lines around them: nothing is wrapped.
    slots = lines[next(n for n, line in enumerate(lines) if "the slowest first" in line) :]
    end = next(n for n, line in enumerate(slots) if "└" in line)
    assert end == 6
    assert "…" in slots[4]


def test_what_is_unknown_is_a_dash_and_markup_is_text():
    text = "\n".join(shown(100))
    assert "bank.[red]ledger" in text
    assert [line for line in text.splitlines() if "complete_from_us" in line and "│ - " in line]
    assert [line for line in text.splitlines() if "mine: 7" in line]
    assert [line for line in text.splitlines() if "left_out" in line and "none" in line]


def test_a_gap_is_shown_with_times():
    text = "\n".join(shown(160))
    assert "until_us" not in text
    for time in ("1970-01-01T00:00:01Z", "1970-01-01T00:00:02Z", "1970-01-01T00:00:03Z"):
        assert time in text


def test_a_list_without_rows_is_no_table():
    text = "\n".join(shown(100, gaps=[], last_releases=None))
    assert "slots, the slowest first" in text
    assert "accepted gaps" not in text
    assert "last releases" not in text
