"""An injected fault in one change stream query, exact to the row.

The query asks how many rows it may still send and reports its progress; the fault occurs here,
once.  If a method returns True, the query ends at once, with OK.
"""

from __future__ import annotations

from typing import Any

from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.server.faults import Fault
from spanner_simulator.server.host import Host


async def strike(host: Host, fault: Fault, context: Any) -> bool:
    """Make a fault occur; return whether the call must end now, with OK. A stall ends later."""
    match fault.kind:
        case "status":
            raise fault.error
        case "drop":
            if context is not None:
                host.faults.drop(context)
            raise SpannerError(Code.UNAVAILABLE, "The connection was cut")
        case "stall":
            await fault.released.wait()
            return False
        case _:
            return True


class CallFault:
    """The fault of one call, or None; `context` is the gRPC call's, if known."""

    def __init__(self, host: Host, fault: Fault | None, context: Any) -> None:
        self._host = host
        self._fault = fault
        self._context = context

    @property
    def hides_the_end(self) -> bool:
        """Whether the query must end with OK but without the records after its end."""
        fault = self._fault
        return fault is not None and fault.kind == "clean_end" and fault.when == "end"

    def rows_before_it(self, rows: int, *, sent: int) -> int:
        """How many of the wanted rows may be sent before the fault occurs."""
        fault = self._fault
        if fault is None or fault.when != "after_rows" or fault.kind == "slow":
            return rows
        return max(0, min(rows, fault.after_rows - sent))

    def is_due(self, sent: int) -> bool:
        """Whether the fault occurs now, after this number of rows."""
        return self.rows_before_it(1, sent=sent) == 0

    async def at_open(self) -> bool:
        """Before anything was sent."""
        fault = self._fault
        return fault is not None and fault.when == "open" and await self.strike()

    async def at_end(self) -> bool:
        """After everything was sent, before the query ends."""
        fault = self._fault
        return fault is not None and fault.when == "end" and await self.strike()

    async def slowed(self, message: bytes) -> bytes:
        """The message, after the delay of a slow call."""
        if self._fault is not None and self._fault.kind == "slow":
            clock = self._host.clock
            await clock.sleep_until(clock.now_us() + self._fault.delay_ms * 1000)
        return message

    async def strike(self) -> bool:
        """Make the fault occur; a stall that is released lets the query continue."""
        fault = self._fault
        if fault is None or fault.kind == "slow":
            return False
        self._fault = None
        return await strike(self._host, fault, self._context)
