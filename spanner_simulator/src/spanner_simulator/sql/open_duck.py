"""One DuckDB connection per thread, created at the first statement that needs it.

Nothing of a database stays in a connection after a statement, so all databases of a thread share
it; and a simulator whose queries never need DuckDB does not wait for it to load.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spanner_simulator.sql.duck import Duck


class _Local(threading.local):
    duck: Duck | None = None


_LOCAL = _Local()


def open_duck() -> Duck:
    """This thread's connection."""
    if _LOCAL.duck is None:
        from spanner_simulator.sql.duck import Duck  # noqa: PLC0415  # see the module

        _LOCAL.duck = Duck()
    return _LOCAL.duck
