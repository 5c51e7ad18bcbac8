"""The consumer's benchmark still runs, as far as it needs no Java: many small releases."""

from __future__ import annotations

import json

import pytest

from benchmarks.consumer import __main__ as program


def test_small_releases_leave_fewer_files_with_compaction(capsys):
    program.main(["releases", "--releases", "12", "--changes", "2", "--files-min", "4"])

    lines = [one for one in capsys.readouterr().out.splitlines() if one.startswith("{")]
    without, compacted, machine = map(json.loads, lines)
    assert (without["files_min"], without["files"]) == (0, 12)
    assert (compacted["files_min"], compacted["releases"]) == (4, 12)
    assert compacted["files"] < 12
    assert machine["machine"]["cores"] > 0


def test_large_releases_need_a_batch_that_is_measured(capsys):
    with pytest.raises(SystemExit):
        program.main(["large", "--batches", "1"])
    assert "the first one is left out" in capsys.readouterr().err
