"""The gate's plans, states and frontiers below a checkpoint's `gate` folder."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar
from uuid import uuid4

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.core.batch_state import State
from tidegate.spark_consumer.core.files import (
    PLANS,
    QUERY_FILE,
    STATES,
    frontier_file,
    number_in,
    plan_file,
    state_file,
)
from tidegate.spark_consumer.core.frontier import Frontier
from tidegate.spark_consumer.core.plan import Plan
from tidegate.spark_consumer.errors import CheckpointMismatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from tidegate.spark_consumer.core.subscription import Subscription
    from tidegate.spark_consumer.spark.storage import Storage

__all__ = ["GateFiles", "JsonFiles", "QueryIdentity", "newest_state"]

_Stored = TypeVar("_Stored")


class JsonFiles(Protocol):
    """Where stored things are read: Hadoop's FileSystem, or a plain folder."""

    def read_json(self, name: str) -> dict[str, Any] | None:
        """Return a file's content, or None if there is no such file."""
        ...

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder; a folder that is not there has none."""
        ...


@dataclass(frozen=True, slots=True)
class QueryIdentity:
    """What a checkpoint belongs to; written once, when it is begun."""

    query_id: str
    prefix: str
    output: str


class GateFiles:
    """Loads and stores by batch; the storage sees to it that there is one writer."""

    def __init__(self, storage: Storage) -> None:
        """Take the `gate` folder."""
        self._storage = storage

    def identify(self, *, prefix: str, output: str) -> QueryIdentity:
        """Return the identity of this checkpoint, made now if it is new.

        Raises ConfigError if the checkpoint belongs to another prefix or output.
        """
        fresh = QueryIdentity(str(uuid4()), prefix, output)
        self._storage.create_json(QUERY_FILE, asdict(fresh))
        found = QueryIdentity(**(self._storage.read_json(QUERY_FILE) or {}))
        for name in ("prefix", "output"):
            if getattr(found, name) != getattr(fresh, name):
                message = f"the checkpoint belongs to another {name}"
                hint = f"Take the former {name}, or a new checkpoint with a new output"
                fields = {"checkpoint_has": getattr(found, name), "asked": getattr(fresh, name)}
                raise ConfigError(message, hint=hint, **fields)
        return found

    def release_max(self) -> int:
        """Return the highest release that a state or plan names, -1 if none does."""
        numbers = [-1]
        newest = newest_state(self._storage)
        if newest is not None:
            numbers.append(newest.next_release - 1)
        for batch in self._last(PLANS):
            plan = self.plan(batch)
            numbers += [bounds.number for bounds in plan.releases] if plan is not None else []
        return max(numbers)

    def state(self, batch: int) -> State | None:
        """Return the state after a batch, if it was stored."""
        return self._load(state_file(batch), State.restore)

    def store_state(self, state: State) -> None:
        """Store the state after a batch: the last thing that the batch does."""
        self._storage.write_json(state_file(state.batch), state.snapshot())

    def plan(self, batch: int) -> Plan | None:
        """Return the plan of a batch, if it was made."""
        return self._load(plan_file(batch), Plan.restore)

    def store_plan(self, plan: Plan) -> None:
        """Store the plan of a batch; raises CheckpointMismatch if one is there."""
        if not self._storage.create_json(plan_file(plan.batch), plan.snapshot()):
            message = "another run has planned this batch"
            raise CheckpointMismatch(message, batch=plan.batch)

    def frontier(self, name: str, subscription: Subscription) -> Frontier | None:
        """Return a stored frontier, if it is there."""
        return self._load(frontier_file(name), lambda data: Frontier.restore(data, subscription))

    def store_frontier(self, name: str, frontier: Frontier) -> None:
        """Store a frontier, also over one of that name."""
        self._storage.write_json(frontier_file(name), frontier.snapshot())

    def delete(self, names: Iterable[str]) -> None:
        """Delete files that no batch can need again."""
        self._storage.delete(names)

    def _last(self, folder: str) -> list[int]:
        return sorted(number_in(name) for name in self._storage.names(folder))[-1:]

    def _load(self, name: str, rebuild: Callable[[dict[str, Any]], _Stored]) -> _Stored | None:
        content = self._storage.read_json(name)
        return None if content is None else rebuild(content)


def newest_state(files: JsonFiles) -> State | None:
    """Return the newest state in a `gate` folder, or None before the first batch."""
    batches = sorted(number_in(name) for name in files.names(STATES))
    content = files.read_json(state_file(batches[-1])) if batches else None
    return None if content is None else State.restore(content)
