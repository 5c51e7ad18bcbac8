"""What a run does when another one has written a file that it was about to write itself.

A run that was replaced while it stood still may go on inside Spark, which does not look for a
younger run: it writes `commits/N` of the batch that it had finished, and `offsets/N+1`.  After that
the gate refuses it.  Spark ends the query of the rightful run when that comes to the same file.

The run may start its query again and take the files as they are.  A batch is committed after its
state is stored, by whichever run, so the query goes on with a batch whose predecessor has a state;
what the batch reads is what `offsets` says when the query starts, and what it does is what its plan
says, which is stored once.
"""

from __future__ import annotations

from collections import deque

_TEXTS_OF_SPARK = (
    "[CONCURRENT_STREAM_LOG_UPDATE]",
    "Multiple streaming queries are concurrently using",
)
"""The first where Spark finds the file before it writes its own, the second where it does after."""

_RESTARTS_MAX = 5
_WITHIN_S = 600.0


def is_late_write(text: str) -> bool:
    """Whether Spark's text of a failure says that another run has written to Spark's logs."""
    return any(known in text for known in _TEXTS_OF_SPARK)


class QueryRestarts:
    """Decides whether a run starts its query again.

    A replaced run writes two files at most.  More of them are the work of something that no
    take-over stops, and the run has to say so.
    """

    def __init__(self, *, restarts_max: int = _RESTARTS_MAX, within_s: float = _WITHIN_S) -> None:
        """Allow `restarts_max` starts in any `within_s` seconds."""
        self._restarts_max = restarts_max
        self._within_s = within_s
        self._at_s: deque[float] = deque()

    def may_restart(self, *, now_s: float) -> bool:
        """Return whether the query may be started again now; `now_s` never goes back."""
        while self._at_s and now_s - self._at_s[0] >= self._within_s:
            self._at_s.popleft()
        if len(self._at_s) >= self._restarts_max:
            return False
        self._at_s.append(now_s)
        return True
