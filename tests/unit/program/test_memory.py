"""The memory of a program: which cycles are collected, and freed pages that are returned."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

import pytest

from tidegate.program import memory
from tidegate.program.memory import collect_rarely, return_freed_memory


class Node:
    """Refers to itself."""

    def __init__(self):
        self.itself = self


def test_what_exists_at_the_start_is_exempt_and_later_cycles_are_collected():
    thresholds = gc.get_threshold()
    try:
        collect_rarely()
        assert gc.get_freeze_count() > 10_000
        assert gc.get_threshold()[0] > 10_000
        nodes = [Node() for _ in range(1_000)]
        known = [weakref.ref(node) for node in nodes]
        del nodes
        kept = [[] for _ in range(gc.get_threshold()[0] + 1_000)]
        assert len(kept) > 0
        assert not any(ref() for ref in known)
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)


PROGRAM = """
from pathlib import Path
from tidegate.program.memory import return_freed_memory

def resident_mib():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024

blocks = [b"x" * 100_000 for _ in range(1_280)]
kept = blocks[1::2]  # between the others and behind them, so that the heap cannot just end earlier
held = resident_mib()
blocks.clear()
freed = resident_mib()
return_freed_memory()
print(held - freed, held - resident_mib())
"""


@pytest.mark.skipif(memory._glibc() is None, reason="another allocator than glibc's")
def test_pages_of_freed_blocks_are_returned():
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True
    )
    by_freeing, by_returning = map(float, ran.stdout.split())
    assert by_returning > by_freeing + 20


def test_nothing_is_done_with_another_allocator(monkeypatch):
    called = []
    library = type("Library", (), {"malloc_trim": staticmethod(called.append)})
    for found in (None, library):
        monkeypatch.setattr(memory, "_glibc", lambda found=found: found)
        return_freed_memory()
    assert called == [0]
    monkeypatch.undo()
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda _name: object())
    assert memory._glibc.__wrapped__() is None
