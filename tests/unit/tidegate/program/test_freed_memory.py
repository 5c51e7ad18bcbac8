"""Freed memory goes back to the operating system, where the allocator can do it."""

import subprocess
import sys

import pytest

from tidegate.program import freed_memory
from tidegate.program.freed_memory import return_freed_memory

PROGRAM = """
from pathlib import Path
from tidegate.program.freed_memory import return_freed_memory

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


@pytest.mark.skipif(freed_memory._glibc() is None, reason="another allocator than glibc's")
def test_pages_of_freed_blocks_are_returned():
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True
    )
    by_freeing, by_returning = map(float, ran.stdout.split())
    assert by_returning > by_freeing + 20


def test_nothing_is_done_with_another_allocator(monkeypatch):
    called = []
    monkeypatch.setattr(freed_memory, "_glibc", lambda: None)
    return_freed_memory()
    library = type("Library", (), {"malloc_trim": staticmethod(called.append)})
    monkeypatch.setattr(freed_memory, "_glibc", lambda: library)
    return_freed_memory()
    assert called == [0]


def test_a_library_without_the_function_is_left_alone(monkeypatch):
    monkeypatch.setattr(freed_memory.ctypes, "CDLL", lambda _name: object())
    assert freed_memory._glibc.__wrapped__() is None
