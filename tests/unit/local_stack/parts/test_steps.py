"""The step that a program is in, by the last step line of its log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidegate.local_stack.parts.steps import StepFollower, last_step, step_of, wait_for_step


def line(step: str) -> str:
    return json.dumps({"level": "debug", "event": "step", "step": step}) + "\n"


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ('{"event": "step", "step": "fence"}', "fence"),
        ('{"step":"fence","event":"step"}', "fence"),
        ('prefix {"event": "step", "step": "fence"}', "fence"),
        ('{"event": "other", "step": "fence"}', None),
        ('{"event": "step", "step": "fen', None),
        ('no braces but "step"', None),
        ("plain text", None),
    ],
)
def test_only_whole_step_lines_count(text: str, step: str | None):
    assert step_of(text.encode()) == step


def test_the_last_step_is_the_last_line_that_names_one(tmp_path: Path):
    log = tmp_path / "log"
    log.write_text(line("begin") + "something else\n" + line("publish") + '{"event": "step", "st')

    assert last_step(log) == "publish"


def test_a_process_that_has_logged_nothing_is_at_its_start(tmp_path: Path):
    log = tmp_path / "log"
    log.write_text(line("begin"))

    assert last_step(log, since=log.stat().st_size) == "start"
    assert last_step(tmp_path / "none") == "start"


def test_a_follower_sees_what_is_added_once(tmp_path: Path):
    log = tmp_path / "log"
    log.write_text(line("begin"))
    follower = StepFollower.at_end(log)
    whole = line("publish") + line("fence")
    with log.open("a") as file:
        file.write(whole[:-5])
        file.flush()
        first = follower.new_steps()
        file.write(whole[-5:])
    second = follower.new_steps()

    assert (first, second, follower.new_steps()) == (["publish"], ["fence"], [])


def test_waiting_ends_with_the_step_or_with_the_program(tmp_path: Path):
    log = tmp_path / "log"
    follower = StepFollower.at_end(log)
    log.write_text(line("begin") + line("fence"))

    assert wait_for_step(
        follower, accept=lambda step: step == "fence", go_on=lambda: True, deadline_s=10
    )
    assert not wait_for_step(follower, accept=lambda _: True, go_on=lambda: False, deadline_s=10)
