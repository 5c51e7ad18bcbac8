"""All verbs together."""

from __future__ import annotations

from spanner_simulator.control.clock_verbs import ClockVerbs
from spanner_simulator.control.database_verbs import DatabaseVerbs
from spanner_simulator.control.fault_verbs import FaultVerbs
from spanner_simulator.control.stream_verbs import StreamVerbs


class Verbs(DatabaseVerbs, StreamVerbs, ClockVerbs, FaultVerbs):
    """All operations on a running simulator, besides its API."""
