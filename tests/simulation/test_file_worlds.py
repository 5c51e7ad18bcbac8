"""Worlds of files are a part of the simulation's seeds, and fail with their seed."""

from __future__ import annotations

from unittest.mock import patch

from tests.datastream_files import SOURCES
from tests.simulation import __main__ as program
from tests.simulation import file_worlds
from tests.simulation.file_worlds import file_report, run_file_worlds
from tests.simulation.runner import Verdict


def test_each_tenth_seed_runs_a_world_of_every_source():
    verdicts = [one for seed in range(20, 31) for one in run_file_worlds(seed)]

    assert [(one.seed, one.source) for one in verdicts] == [
        (seed, source) for seed in (20, 30) for source in SOURCES
    ]
    assert [one.found for one in verdicts if one.found] == []
    assert {one.is_growing for one in verdicts} == {False, True}
    assert all(one.events for one in verdicts)


def test_what_the_judge_finds_and_a_world_that_cannot_go_on_say_how_to_repeat_them():
    with patch.object(file_worlds, "judge", lambda _world: ["lost: 7"]):
        (judged, *_) = run_file_worlds(10)
    with patch.object(file_worlds, "run_world", lambda *_, **__: 1 / 0):
        (stuck, *_) = run_file_worlds(10)

    assert (judged.found, stuck.found) == (("lost: 7",), ("ZeroDivisionError: division by zero",))
    assert list(file_report(judged)) == [
        f"seed 10 failed: files of {SOURCES[0]}",
        "  lost: 7",
        f"  again: run_world(1000010, source={SOURCES[0]!r}, growing=False)",
    ]


class _Pool:
    """Stands for the processes: runs in this one."""

    def __init__(self, *_, **__):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def map(self, function, seeds, **_):
        return map(function, seeds)


def test_a_seed_whose_files_fail_has_failed(capsys):
    with (
        patch.object(program, "ProcessPoolExecutor", _Pool),
        patch.object(program, "run_seed", lambda seed: Verdict(seed, {}, 1, 1)),
        patch.object(file_worlds, "run_world", lambda *_, **__: 1 / 0),
    ):
        assert program.main(["--seeds", "11", "--workers", "1"]) == 1
        printed = capsys.readouterr().out
        assert program.main(["--seeds", "9", "--workers", "1"]) == 0

    assert f"{len(SOURCES)} worlds, 0 events, 0 deaths, {len(SOURCES)} worlds failed" in printed
    assert "10 passed, 1 failed" in printed
    assert "9 passed, 0 failed" in capsys.readouterr().out
