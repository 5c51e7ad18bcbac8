"""Which archive a program is started with, and that none is used that could harm it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tidegate.local_stack.parts.class_archives import SILENT, ClassArchives, class_archives


@pytest.fixture
def archives(tmp_path: Path) -> ClassArchives:
    (tmp_path / "spark.jsa").write_bytes(b"classes")
    return ClassArchives(tmp_path)


def test_a_program_starts_from_its_archive(archives: ClassArchives):
    archives.seal("17 /jars")

    assert archives.options("spark") == (
        f"-XX:SharedArchiveFile={archives.folder}/spark.jsa",
        *SILENT,
    )
    assert archives.options("registry") == ()
    assert archives.exist
    assert archives.are_of("17 /jars")
    assert not archives.are_of("21 /jars")


def test_an_archive_without_a_stamp_is_not_used(archives: ClassArchives):
    assert archives.options("spark") == ()
    assert not archives.exist
    assert not archives.are_of("17 /jars")


@pytest.mark.parametrize("stamp", ["", "[]", '{"key": "17", "spark.jsa"'])
def test_a_damaged_stamp_counts_as_absent(archives: ClassArchives, stamp: str):
    (archives.folder / "stamp.json").write_text(stamp)

    assert archives.options("spark") == ()
    assert not archives.exist


def test_an_archive_that_was_cut_short_is_not_used(archives: ClassArchives):
    # Java does not ignore one: it dies of SIGBUS.
    archives.seal("17 /jars")
    (archives.folder / "spark.jsa").write_bytes(b"clas")

    assert archives.options("spark") == ()


def test_that_none_could_be_made_is_known(tmp_path: Path):
    archives = ClassArchives(tmp_path)
    archives.seal("17 /jars")

    assert archives.are_of("17 /jars")
    assert archives.options("spark") == ()


def test_they_go_with_the_packages_of_their_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    assert class_archives().folder == tmp_path / "venv" / "class-archives"
    monkeypatch.setattr(sys, "prefix", "/usr")
    assert class_archives().folder == tmp_path / "cache" / "tidegate" / "class-archives"
    assert class_archives(tmp_path / ".venv").folder == tmp_path / ".venv" / "class-archives"
