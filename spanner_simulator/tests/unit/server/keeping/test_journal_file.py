from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from spanner_simulator.server.keeping.journal_file import DamagedJournalError, JournalFile

HEAD = len(b"spanner-simulator journal 1\n")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.journal"


def write(path: Path, *entries: Any) -> None:
    journal = JournalFile(path)
    for entry in entries:
        journal.append(entry)
    journal.close()


def read(path: Path) -> tuple[list[Any], int]:
    journal = JournalFile(path)
    found = list(journal.entries()), journal.cut_bytes
    journal.close()
    return found


def test_a_file_cut_anywhere_keeps_what_was_whole(path: Path, tmp_path: Path) -> None:
    write(path, "first", "second")
    whole = path.read_bytes()
    one = tmp_path / "one.journal"
    write(one, "first")
    first = one.stat().st_size
    torn = tmp_path / "torn.journal"
    for length in range(len(whole)):
        torn.write_bytes(whole[:length])
        entries, cut_bytes = read(torn)
        assert entries == (["first"] if length >= first else [])
        kept = first if length >= first else HEAD
        assert cut_bytes == (length - kept if length >= HEAD else 0)
        write(torn, "third")
        assert read(torn) == ([*entries, "third"], 0)


def test_a_last_entry_with_bytes_lost_is_cut_away(path: Path) -> None:
    write(path, "first", "second")
    content = bytearray(path.read_bytes())
    content[-2:] = b"\0\0"
    path.write_bytes(content)
    assert read(path)[0] == ["first"]


def test_damage_before_the_end_is_refused_and_left_as_it_is(path: Path) -> None:
    write(path, "first", "second")
    whole = path.read_bytes()
    for at in range(HEAD, (len(whole) + HEAD) // 2):
        damaged = bytearray(whole)
        damaged[at] ^= 0xFF
        path.write_bytes(damaged)
        with pytest.raises(DamagedJournalError, match=r"a\.journal is damaged at byte 28"):
            JournalFile(path)
        assert path.read_bytes() == damaged


def test_after_the_disk_has_failed_nothing_is_taken(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_file: int) -> None:
        raise OSError(5, "Input/output error")

    journal = JournalFile(path)
    journal.append("a")
    monkeypatch.setattr(os, "fsync", fail)
    for act in (journal.sync, lambda: journal.append("b")):
        with pytest.raises(OSError, match="Input/output error"):
            act()
    monkeypatch.undo()
    journal.close()
    assert read(path) == (["a"], 0)
