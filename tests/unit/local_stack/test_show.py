"""Tables are shown as they are in Delta, and a row is waited for."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from rich.console import Console

from tidegate.local_stack.errors import PartFailedError
from tidegate.local_stack.show import changelog_rows, mirror_rows, rows_table, wait_for_key
from tidegate.schemas.errors import ConfigError


@pytest.fixture
def output(tmp_path: Path) -> Path:
    rows = [{"AccountId": "a", "Balance": 1}, {"AccountId": "b", "Balance": None}]
    write_deltalake(str(tmp_path / "mirror" / "accounts"), pa.Table.from_pylist(rows))
    changes = [
        {
            "release": release,
            "ordinal": ordinal,
            "commit_timestamp": datetime(2026, 1, 1, tzinfo=UTC),
            "mod_type": "INSERT",
            "key": {"AccountId": key},
            "new_values": {"AccountId": key, "Balance": 1},
            "offset": 7,
        }
        for release, ordinal, key in ((1, 0, "c"), (0, 1, "b"), (0, 0, "a"))
    ]
    write_deltalake(str(tmp_path / "changelog" / "accounts"), pa.Table.from_pylist(changes))
    return tmp_path


def test_a_mirror_is_its_rows(output: Path):
    assert {row["AccountId"] for row in mirror_rows(output, "accounts")} == {"a", "b"}


def test_a_changelog_is_in_order_and_without_coordinates(output: Path):
    rows = changelog_rows(output, "accounts")

    assert [row["key"]["AccountId"] for row in rows] == ["a", "b", "c"]
    assert "offset" not in rows[0]


def test_a_missing_table_is_one_clear_error(output: Path):
    with pytest.raises(ConfigError, match=r"no mirror of table 'nobody'.*accounts"):
        mirror_rows(output, "nobody")
    with pytest.raises(ConfigError, match="none yet"):
        mirror_rows(output / "deeper", "nobody")


def test_a_row_is_waited_for_by_key(output: Path):
    answers: list[list[dict[str, Any]]] = [[], [], mirror_rows(output, "accounts")]

    found = wait_for_key(lambda: answers.pop(0), "a", deadline_s=30)

    assert [row["AccountId"] for row in found] == ["a"]
    assert answers == []


def test_changes_are_found_by_their_key_too(output: Path):
    found = wait_for_key(lambda: changelog_rows(output, "accounts"), "c", deadline_s=0)

    assert [row["release"] for row in found] == [1]


def test_a_row_that_does_not_come_is_an_error(output: Path):
    with pytest.raises(PartFailedError, match="'a'"):
        wait_for_key(list, "a", deadline_s=0)
    with pytest.raises(PartFailedError, match=r"2 rows, .*\['[ab]', '[ab]'\]. Check the key"):
        wait_for_key(lambda: mirror_rows(output, "accounts"), "c", deadline_s=0)


def test_a_long_wait_is_said_once(output: Path):
    answers: list[list[dict[str, Any]]] = [[], [], [], mirror_rows(output, "accounts")]
    said: list[str] = []

    wait_for_key(lambda: answers.pop(0), "a", deadline_s=30, say=said.append, say_after_s=0)

    assert said == ["waiting for key 'a', for 30 s at most: 0 rows so far"]


def test_the_newest_rows_are_printed(output: Path):
    console = Console(file=io.StringIO(), width=200, record=True)
    console.print(rows_table(changelog_rows(output, "accounts"), title="t", rows_max=2))
    text = console.export_text()

    assert "t: 3 rows" in text
    assert "AccountId=c, Balance=1" in text
    assert "AccountId=b" in text
    assert "AccountId=a" not in text


def test_null_is_shown_differently_from_text():
    console = Console(file=io.StringIO(), width=200, record=True)
    console.print(rows_table([{"Id": "x", "Note": None}], title="t", rows_max=2))

    assert "NULL" in console.export_text()
