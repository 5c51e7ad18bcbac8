"""Conditions as the loop uses them, so that a test may schedule its waiting itself.

The loop waits through the ports `Threads` and `Condition` only, and never holds a lock while it
calls another port.  What runs beside it: `tasks.py`.
"""

from __future__ import annotations

import threading

from tidegate.producer.ports import Condition


class SystemThreads:
    """Threads of the operating system; implements `ports.Threads`."""

    def condition(self) -> Condition:
        """Return a `threading.Condition`."""
        return threading.Condition()
