"""Python's garbage collector, for a program that moves records.

Records are freed by their reference counts.  The collector looks for cycles only, and by default
after every 700 new objects, which took a quarter of a worker's CPU time under load.
"""

from __future__ import annotations

import gc

_NEW_OBJECTS = 50_000


def collect_rarely() -> None:
    """Leave all objects that exist now to the end of the process, and look for cycles less often.

    Call it once, when the program has started.  Cycles that are made later are still collected.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, 10, 10)
