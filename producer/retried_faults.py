"""What a worker has met and tries again: what, of what, how often, first and last, what to do.

No record holds it, since nothing follows from it for others: it is in the process that has met it,
which serves it as `/errors` beside its metrics.  Equal faults of one object share an entry; of more
entries than the list takes, those that were seen longest ago are dropped, and counted.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

ERRORS_PATH = "/errors"
"""Where a worker serves its list."""

_ENTRIES_MAX = 200
_TEXT_MAX = 500


@dataclass(frozen=True, slots=True)
class RetriedFault:
    """A fault of one object."""

    error: str
    """Its class, or what happened; with gRPC's code where there is one."""
    subject: str
    """The stream partition or the topic; empty for the worker as a whole."""
    count: int
    first_us: int
    last_us: int
    """Wall time, by the worker's clock."""
    text: str
    """What happened the last time."""
    remedy: str
    """What to do."""


class RetriedFaults:
    """The faults of one process since its start; any thread may read while one writes."""

    def __init__(self, *, entries_max: int = _ENTRIES_MAX) -> None:
        """Start without any."""
        self._entries_max = entries_max
        self._found: OrderedDict[tuple[str, str], RetriedFault] = OrderedDict()
        self._lock = threading.Lock()
        self._dropped = 0

    def note(self, error: str, subject: str, *, text: str, remedy: str, at_us: int) -> None:
        """Count a fault."""
        with self._lock:
            before = self._found.pop((error, subject), None)
            text = text[:_TEXT_MAX]
            if before is None:
                found = RetriedFault(error, subject, 1, at_us, at_us, text, remedy)
            else:
                found = replace(before, count=before.count + 1, last_us=at_us, text=text)
            self._found[error, subject] = found
            if len(self._found) > self._entries_max:
                self._found.popitem(last=False)
                self._dropped += 1

    def listed(self) -> tuple[RetriedFault, ...]:
        """Return the faults, the newest first."""
        with self._lock:
            return tuple(reversed(self._found.values()))

    def as_json(self) -> str:
        """Return the faults as one JSON object, with the number of entries that were dropped."""
        retried = [asdict(one) for one in self.listed()]
        return json.dumps({"retried": retried, "dropped": self._dropped}, ensure_ascii=False)


def faults_of_json(text: str) -> tuple[tuple[RetriedFault, ...], int]:
    """Return the faults that `as_json` wrote, and how many entries were dropped.

    Raises ValueError, KeyError and TypeError for anything else.
    """
    found = json.loads(text)
    if not isinstance(found, dict) or not isinstance(found["retried"], list):
        raise TypeError(_NOT_A_LIST)
    return tuple(map(_fault, found["retried"])), int(found["dropped"])


_NOT_A_LIST = "not a list of errors"


def _fault(found: Mapping[str, object]) -> RetriedFault:
    texts = [str(found[name]) for name in ("error", "subject", "text", "remedy")]
    count, first_us, last_us = (int(str(found[name])) for name in ("count", "first_us", "last_us"))
    return RetriedFault(texts[0], texts[1], count, first_us, last_us, texts[2], texts[3])
