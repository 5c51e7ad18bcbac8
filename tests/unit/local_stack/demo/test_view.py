"""A run is printed in lines where there is no terminal, and drawn where there is one."""

from __future__ import annotations

import io

from rich.console import Console

from tidegate.local_stack.demo.view import RunView


def plain() -> tuple[RunView, io.StringIO]:
    text = io.StringIO()
    return RunView(Console(file=text, width=200)), text


def test_stages_and_events_are_lines():
    view, text = plain()
    with view:
        view.stage("starting")
        view.stage("starting")
        view.event("killed [w1]")

    lines = text.getvalue().splitlines()
    assert len(lines) == 2
    assert lines[0].endswith("starting")
    assert lines[1].endswith("killed [w1]")


def test_figures_come_now_and_then():
    view, text = plain()
    view.began -= 100
    with view:
        view.figures(transfers="3/10")
        view.figures(transfers="4/10", live_stream_partitions=4)

    assert text.getvalue().count("transfers") == 1
    view.began -= 100
    view.figures(transfers="5/10")
    assert "transfers 5/10, live stream partitions 4" in text.getvalue()


def test_details_come_now_and_then():
    view, text = plain()
    view.began -= 100
    view.detail("first")
    view.detail("second")

    assert "first" in text.getvalue()
    assert "second" not in text.getvalue()


def test_a_terminal_sees_stage_and_figures_while_it_runs():
    text = io.StringIO()
    view = RunView(Console(file=text, force_terminal=True, width=120))
    with view:
        view.stage("working hard")
        view.figures(releases=7)
        view.console.print("drawn")

    assert "working hard" in text.getvalue()
    assert "releases" in text.getvalue()


def test_what_is_printed_while_it_is_hidden_begins_a_line_of_its_own():
    text = io.StringIO()
    view = RunView(Console(file=text, width=200, force_terminal=True))
    with view:
        view.stage("starting")
        before = text.getvalue()
        with view.hidden():
            text.write("export A=1\n")
            text.write("export B=2\n")
        view.stage("up")

    written = text.getvalue()[len(before) :]
    head, _, rest = written.partition("export A=1\nexport B=2\n")
    # The drawn line is erased, and the cursor is where it began.
    assert head.endswith("\x1b[2K")
    assert "up" in rest
    plainly, text = plain()
    with plainly, plainly.hidden():
        text.write("export A=1\n")
    assert text.getvalue() == "export A=1\n"
