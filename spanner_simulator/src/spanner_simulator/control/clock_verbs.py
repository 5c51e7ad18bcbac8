"""Verbs on time: the clock itself, and the work that is due as time passes."""

from __future__ import annotations

from typing import Any

from spanner_simulator.control.on_loop import OnLoop
from spanner_simulator.control.verb import action, question
from spanner_simulator.core.timestamps import format_us, parse_ns
from spanner_simulator.errors import invalid_argument, out_of_range
from spanner_simulator.server.host import Host

# Commit timestamps begin with the Unix epoch; the last year that can be written is reserved for
# times after now, such as a query's end and a retention period.
EARLIEST, LATEST = "1970-01-01T00:00:00Z", "9999-01-01T00:00:00Z"
_LATEST_US = parse_ns(LATEST) // 1000
# Timers run at each of their times within a jump; this bounds their number.
_ADVANCE_MS_MAX = 400 * 86_400_000


class ClockVerbs(OnLoop):
    """Verbs for the clock and what depends on it. All raise `SpannerError`."""

    @question()
    def clock(self) -> dict[str, Any]:
        """What time it is in the simulator, and whether time stands still."""
        return self._run(_describe)

    @action
    def advance(self, by_ms: int) -> dict[str, Any]:
        """Jump ahead; whatever falls due on the way happens, each at its own time."""
        if not 0 <= by_ms <= _ADVANCE_MS_MAX:
            raise invalid_argument(f"The argument by_ms must lie in [0, {_ADVANCE_MS_MAX}].")

        def act(host: Host) -> dict[str, Any]:
            _jump(host, by_ms * 1000)
            return _describe(host)

        return self._run(act)

    @action
    def expire_retention(self, database: str, stream: str) -> dict[str, Any]:
        """Jump ahead by the retention period of a change stream, and forget what is too old."""

        def act(host: Host) -> dict[str, Any]:
            hosted = host.database(database)
            retention_us = hosted.database.catalogue.stream(stream).retention_us
            # One step further, so that an event of this moment is too old as well.
            _jump(host, retention_us + 1)
            _, records = host.expire(hosted)
            return {"records": records, **_describe(host)}

        return self._run(act)

    @action
    def delete_expired_rows(self, database: str) -> dict[str, Any]:
        """Delete the rows that row deletion policies select now; the service does so at times."""
        return self._run(lambda host: {"rows": host.expire(host.database(database))[0]})

    @action
    def freeze(self) -> dict[str, Any]:
        """Let time stand still: it moves by `advance` only, and a step with each commit."""

        def act(host: Host) -> dict[str, Any]:
            host.clock.freeze()
            host.keep_time()
            return _describe(host)

        return self._run(act)

    @action
    def thaw(self) -> dict[str, Any]:
        """Let time run again from where it stands."""

        def act(host: Host) -> dict[str, Any]:
            host.clock.thaw()
            host.keep_time()
            return _describe(host)

        return self._run(act)


def _jump(host: Host, by_us: int) -> None:
    if host.now_us() + by_us > _LATEST_US:
        raise out_of_range(f"The clock does not go beyond {LATEST}.")
    host.clock.advance(by_us)
    host.keep_time()


def _describe(host: Host) -> dict[str, Any]:
    now_us = host.now_us()
    return {"now": format_us(now_us), "now_timestamp_us": now_us, "is_frozen": host.clock.is_frozen}
