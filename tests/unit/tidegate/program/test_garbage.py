"""The collector after a program's start: what exists is left alone, new cycles are not."""

from __future__ import annotations

import gc
import weakref

import pytest

from tidegate.program.garbage import collect_rarely


@pytest.fixture(autouse=True)
def _restore():
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


class Node:
    """Refers to itself."""

    def __init__(self):
        self.itself = self


def test_what_exists_at_the_start_is_exempt():
    collect_rarely()

    assert gc.get_freeze_count() > 10_000
    assert gc.get_threshold()[0] > 10_000


def test_cycles_made_later_are_collected_without_being_asked():
    collect_rarely()
    nodes = [Node() for _ in range(1_000)]
    known = [weakref.ref(node) for node in nodes]
    del nodes

    kept = [[] for _ in range(gc.get_threshold()[0] + 1_000)]

    assert len(kept) > 0
    assert not any(ref() for ref in known)
