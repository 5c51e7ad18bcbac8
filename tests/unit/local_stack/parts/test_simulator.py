"""What the simulator says when it is ready, and what is made of it."""

from __future__ import annotations

import threading

import pytest

from tidegate.local_stack.errors import PartFailedError
from tidegate.local_stack.parts import simulator as module
from tidegate.local_stack.parts.simulator import SpannerSimulator


def make_simulator(tmp_path, **more) -> SpannerSimulator:
    return SpannerSimulator(
        data_dir=tmp_path, port=0, control_port=0, cancelled=threading.Event(), **more
    )


def test_it_learns_where_the_simulator_listens():
    said = '{"grpc": "127.0.0.1:11", "control": "127.0.0.1:12"}\n'

    assert ("127.0.0.1:11", "127.0.0.1:12") == module._addresses(said)


@pytest.mark.parametrize("said", ["", "hello\n", "{}\n", "[]\n", '{"grpc": "x"}\n'])
def test_anything_else_is_an_error(said):
    with pytest.raises(PartFailedError, match="instead of its addresses"):
        module._addresses(said)


def test_stopping_what_was_never_started_is_fine(tmp_path):
    make_simulator(tmp_path).stop()
