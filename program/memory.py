"""Settings for the memory of a program that moves records: garbage collector and glibc allocator.

Records are freed by their reference counts.  The collector only looks for cycles, by default after
every 700 new objects, which took a quarter of a worker's CPU time under load.  A large message is
copied several times while it is read. glibc keeps freed blocks that are below used ones, so a
process that receives large messages grows beyond its data.  With another allocator no memory is
returned.
"""

from __future__ import annotations

import ctypes
import gc
from functools import lru_cache
from typing import Any

_NEW_OBJECTS = 50_000


def collect_rarely() -> None:
    """Exempt all existing objects from garbage collection, and collect less often.

    Call it once, when the program has started.  Cycles that are made later are still collected.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, 10, 10)


@lru_cache(maxsize=1)
def _glibc() -> Any:
    """Return the process's own library, or None if its allocator has no such function."""
    try:
        library = ctypes.CDLL(None)
    except (OSError, TypeError):  # a static program; Windows
        return None
    return library if hasattr(library, "malloc_trim") else None


def return_freed_memory() -> None:
    """Return every page that holds only freed blocks; takes milliseconds, without Python's lock."""
    library = _glibc()
    if library is not None:
        library.malloc_trim(0)
