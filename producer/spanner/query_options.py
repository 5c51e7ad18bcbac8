"""How Spanner is asked to treat change stream queries: priority, tag, replicas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidegate.producer.spanner.api_messages import DirectedReadOptions, RequestOptions


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """Options of every query of a stream; by default none is sent, and Spanner decides."""

    priority: str = ""
    """`LOW`, `MEDIUM` or `HIGH`, as `RequestOptions.Priority` names them."""
    tag: str = ""
    """Stands in Spanner's statistics of queries."""
    replicas: tuple[tuple[str, str], ...] = ()
    """Where queries are served, the preferred first: a location, and the replica's type or ""."""

    def apply(self, request: Any) -> None:
        """Set them in an `ExecuteSqlRequest`."""
        if self.priority:
            request.request_options.priority = getattr(
                RequestOptions.Priority, f"PRIORITY_{self.priority}"
            )
        if self.tag:
            request.request_options.request_tag = self.tag
        for location, kind in self.replicas:
            selection = request.directed_read_options.include_replicas.replica_selections.add()
            selection.location = location
            if kind:
                selection.type_ = getattr(DirectedReadOptions.ReplicaSelection.Type, kind)
