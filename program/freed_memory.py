"""Memory that was freed, given back to the operating system; of glibc's allocator.

A large message is copied several times while it is read.  glibc keeps freed blocks, those below
others in use for good, so that a process that receives large messages grows beyond what it holds.
With another allocator nothing is done.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any


@lru_cache(maxsize=1)
def _glibc() -> Any:
    """Return the process's own library, or None if its allocator has no such function."""
    try:
        library = ctypes.CDLL(None)
    except (OSError, TypeError):  # a static program; Windows
        return None
    return library if hasattr(library, "malloc_trim") else None


def return_freed_memory() -> None:
    """Return every page that holds freed blocks only; takes milliseconds, without Python's lock."""
    library = _glibc()
    if library is not None:
        library.malloc_trim(0)
