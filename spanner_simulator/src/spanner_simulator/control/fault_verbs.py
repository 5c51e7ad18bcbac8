"""Verbs on faults: rules for future faults, and connections to cut now."""

from __future__ import annotations

from typing import Any

from spanner_simulator.control.description import describe_fault
from spanner_simulator.control.on_loop import OnLoop
from spanner_simulator.control.stream_verbs import status_code
from spanner_simulator.control.verb import action, question
from spanner_simulator.errors import invalid_argument
from spanner_simulator.server.faults import Fault, FaultKind, FaultRule, FaultTime
from spanner_simulator.server.host import Host
from spanner_simulator.server.transport.methods import METHODS

_METHODS = frozenset(method for methods in METHODS.values() for method in methods)


class FaultVerbs(OnLoop):
    """Verbs for faults and holds. All raise `SpannerError`."""

    @question()
    def faults(self) -> list[dict[str, Any]]:
        """The fault rules in force, oldest first, and how often each has fired."""
        return self._run(lambda host: [describe_fault(rule) for rule in host.faults.rules])

    @action
    def add_fault(
        self,
        *,
        method: str | None = None,
        database: str | None = None,
        stream: str | None = None,
        token: str | None = None,
        kind: FaultKind = "status",
        when: FaultTime = "open",
        after_rows: int = 0,
        code: str = "UNAVAILABLE",
        message: str = "Injected fault",
        delay_ms: int = 0,
        count: int | None = 1,
        probability: float = 1.0,
        seed: int = 0,
    ) -> dict[str, Any]:
        """Let calls go wrong: those of a method, database, change stream or stream partition.

        `count` null: without end. A change stream query is one of method ExecuteStreamingSql.
        """
        if method is not None and method not in _METHODS:
            raise invalid_argument(
                f"The argument method must be the bare name of a method, not {method!r}."
            )
        fault = Fault(
            kind=kind,
            when=when,
            after_rows=after_rows,
            code=status_code(code),
            message=message,
            delay_ms=delay_ms,
        )

        def act(host: Host) -> dict[str, Any]:
            # By its full name, by which calls are identified.
            full_name = None if database is None else host.database(database).database.name
            rule = FaultRule(
                fault=fault,
                method=method,
                database=full_name,
                stream=stream,
                token=token,
                count=count,
                probability=probability,
                seed=seed,
            )
            return describe_fault(host.faults.add(rule))

        return self._run(act)

    @action
    def clear_faults(self, *, number: int | None = None) -> dict[str, Any]:
        """Remove one fault rule, or all; the calls that it stalls continue."""
        return self._run(lambda host: {"cleared": host.faults.clear(number)})

    @action
    def drop_connections(self) -> dict[str, Any]:
        """Cut every TCP connection of the API now, as a failing network would."""
        return self._run(lambda host: {"dropped": host.drop_connections()})
