from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from spanner_simulator.server.keeping.data_directory import DataDirectory, DataDirectoryError
from spanner_simulator.server.keeping.journal_file import DamagedJournalError, JournalFile

HOLDER = """
import sys, pathlib
from spanner_simulator.server.keeping.data_directory import DataDirectory
directory = DataDirectory(pathlib.Path(sys.argv[1]))
print("open", flush=True)
sys.stdin.read()
"""


@contextmanager
def opened(path: Path) -> Iterator[DataDirectory]:
    with closing(DataDirectory(path)) as directory:
        yield directory


def test_instances_and_databases_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "new" / "data"
    with opened(path) as directory:
        directory.keep_instance("i", b"1")
        directory.keep_instance("i", b"2")
        directory.keep_instance("gone", b"3")
        directory.forget_instance("gone")
        first = directory.keep_database(
            "a", dialect="GOOGLE_STANDARD_SQL", created_us=5, entries=["e1"]
        )
        first.append("e2")
        directory.keep_database("b", dialect="POSTGRESQL", created_us=6, entries=[])
        directory.keep_database("gone", dialect="POSTGRESQL", created_us=7, entries=[])
        directory.forget_database("gone")
        assert directory.openings == 0

    with opened(path) as directory:
        assert directory.instances == {"i": b"2"}
        assert [
            (one.name, one.dialect, one.created_us, list(one.journal.entries()))
            for one in directory.databases.values()
        ] == [("a", "GOOGLE_STANDARD_SQL", 5, ["e1", "e2"]), ("b", "POSTGRESQL", 6, [])]
        assert (directory.openings, directory.messages) == (1, [])


def test_what_a_dying_process_left_half_done_is_cleared_away(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        directory.keep_database("a", dialect="POSTGRESQL", created_us=1, entries=["whole"])
    # Written before the list would have named it.
    (tmp_path / "database-000009.journal").write_bytes(b"")
    with (tmp_path / "database-000001.journal").open("ab") as file:
        file.write(b"\0\0\0")

    with opened(tmp_path) as directory:
        assert list(directory.databases["a"].journal.entries()) == ["whole"]
        (message,) = directory.messages
    assert "cut 3 bytes of an entry that was not complete" in message
    assert not (tmp_path / "database-000009.journal").exists()


def refusal(path: Path) -> str:
    with pytest.raises(DataDirectoryError) as refused:
        DataDirectory(path)
    return str(refused.value)


def test_a_folder_in_use_by_another_process_is_refused(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        assert "is in use by another simulator" in refusal(tmp_path)
    finally:
        holder.kill()
        holder.communicate()

    with opened(tmp_path):
        pass


def test_a_folder_of_somebody_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("dear")
    assert "holds other files (letters.txt): choose an empty folder" in refusal(tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["letters.txt"]


def test_a_list_that_is_damaged_or_of_no_sense_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        directory._append(["nonsense"])
    assert "directory.journal has an entry of no sense" in refusal(tmp_path)
    (tmp_path / "directory.journal").write_bytes(b"something else")
    assert "directory.journal is not a journal of a simulator" in refusal(tmp_path)


def test_a_database_whose_file_is_gone_is_missed(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        directory.keep_database("a", dialect="POSTGRESQL", created_us=1, entries=[])
    (tmp_path / "database-000001.journal").unlink()
    assert "database-000001.journal, with the data of a, is gone" in refusal(tmp_path)


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
