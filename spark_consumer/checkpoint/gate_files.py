"""The gate's plans, states and frontiers below a checkpoint's `gate` folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar
from uuid import uuid4

from tidegate.lineage.subscription import Subscription
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.topics import TEMPLATE_DEFAULT, TopicNames
from tidegate.spark_consumer.checkpoint.json_files import JsonFiles, JsonStorage, not_as_written
from tidegate.spark_consumer.core.batch_state import State
from tidegate.spark_consumer.core.file_names import (
    ADOPTED_FILE,
    PLANS,
    QUERY_FILE,
    START_FILE,
    STATES,
    frontier_file,
    number_in,
    plan_file,
    state_file,
)
from tidegate.spark_consumer.core.part_log import FrontierLog, StoredFile, StoredFrontier
from tidegate.spark_consumer.core.plan import Plan
from tidegate.spark_consumer.core.sink_names import BY_KEY, MIRRORS
from tidegate.spark_consumer.errors import CheckpointConflict, CheckpointMismatch

_Stored = TypeVar("_Stored")


@dataclass(frozen=True, slots=True)
class QueryIdentity:
    """The stream and output that a checkpoint belongs to; written once, by its first run."""

    query_id: str
    prefix: str
    output: str
    topic_template: str = TEMPLATE_DEFAULT

    @property
    def content(self) -> dict[str, str]:
        """Return the stored form: without the default, so that older programs read it."""
        content = asdict(self)
        if self.topic_template == TEMPLATE_DEFAULT:
            del content["topic_template"]
        return content


class GateFiles:
    """Loads and stores by batch; writing raises WriterReplaced after a younger run has started."""

    def __init__(self, storage: JsonStorage) -> None:
        """Take the `gate` folder."""
        self._storage = storage
        self._held: tuple[str, FrontierLog] | None = None
        self._stored: tuple[Mapping[str, Any], State] | None = None
        """The last state that was stored, with the content of its file."""

    def identify(
        self, names: TopicNames, *, output: str, new_id: Callable[[], object] = uuid4
    ) -> QueryIdentity:
        """Return the identity of this checkpoint; creates it in an empty one.

        Raises ConfigError if the checkpoint belongs to other topics or another output.
        """
        fresh = QueryIdentity(str(new_id()), names.prefix, output, names.template)
        self._storage.create_json(QUERY_FILE, fresh.content)
        return self.require_identity(names, output=output) or fresh

    def require_identity(self, names: TopicNames, *, output: str) -> QueryIdentity | None:
        """Return the identity of this checkpoint, None for an empty one; writes nothing.

        Raises ConfigError if the checkpoint belongs to other topics or another output.
        """
        return require_identity(self._storage, names, output=output)

    def note_start(self, complete_from_us: int | None) -> None:
        """Store from when on the output will be complete; each start before the first batch does.

        None: from the first change of the stream on.
        """
        self._storage.write_json(START_FILE, {"complete_from_us": complete_from_us})

    def adopted(self) -> State | None:
        """Return the state before batch 0, if the checkpoint continues an adopted output."""
        return self._load(ADOPTED_FILE, State.restore)

    def store_adopted(self, state: State) -> None:
        """Store the state before batch 0; raises CheckpointMismatch if there is one."""
        if not self._storage.create_json(ADOPTED_FILE, state.snapshot()):
            raise CheckpointMismatch(
                "the checkpoint has adopted an output already",
                hint="Run with this checkpoint, or adopt into an empty one",
            )

    def release_max(self, sink: str = "") -> int:
        """Return the highest release that a state or plan names for a sink, -1 if none does.

        Mirrors have those of their merges only, and sinks by key the numbers of batches.  In a
        checkpoint that has adopted an output, tables may have begun the next release.
        """
        if sink in BY_KEY:
            return self.batch_max()
        first = self.adopted()
        numbers = [-1 if first is None else first.next_release]
        newest = newest_state(self._storage)
        if newest is not None and (not sink or sink in newest.sinks):
            numbers.append(newest.mirrored if sink in MIRRORS else newest.next_release - 1)
        batch = _newest(self._storage, PLANS, plan_file)
        plan = None if batch is None else self.plan(batch)
        if plan is not None and (not sink or sink in plan.sinks):
            released = tuple(bounds.number for bounds in plan.releases)
            numbers += plan.merged if sink in MIRRORS else released
        return max(numbers)

    def batch_max(self) -> int:
        """Return the highest batch that a state or plan names, -1 if none does."""
        newest, planned = newest_state(self._storage), _newest(self._storage, PLANS, plan_file)
        return max(-1 if newest is None else newest.batch, -1 if planned is None else planned)

    def state(self, batch: int) -> State | None:
        """Return the state after a batch, if it was stored.

        For the state that this object stored last, only the state's own file is read.
        """
        content = self._storage.read_json(state_file(batch))
        if content is None:
            return None
        if self._stored is not None and self._stored[0] == content:
            return self._stored[1]
        return _state(content, self._storage, batch)

    def store_state(self, state: State, files: Iterable[StoredFile] = ()) -> None:
        """Store the files that a state names, then the state after a batch: its last write."""
        self._stored = None
        for file, part in files:
            self._storage.write_json(file, part)
        content = state.snapshot()
        self._storage.write_json(state_file(state.batch), content)
        self._stored = json.loads(json.dumps(content)), state

    def plan(self, batch: int) -> Plan | None:
        """Return the plan of a batch, if it was stored."""
        return self._load(plan_file(batch), Plan.restore)

    def store_plan(self, plan: Plan) -> None:
        """Store the plan of a batch; raises CheckpointConflict if one is stored."""
        if not self._storage.create_json(plan_file(plan.batch), plan.snapshot()):
            raise CheckpointConflict(
                "another run has already planned this batch",
                hint="Nothing is lost: start the run again, and it does what that plan says",
                batch=plan.batch,
            )

    def frontier(self, name: str, subscription: Subscription) -> FrontierLog | None:
        """Return a frontier, if all of it is stored.

        The frontier that this object stored last is not read again: it is handed over, once.
        """
        held, self._held = self._held, None
        if held is not None and held[0] == name:
            return held[1]
        index = self._storage.read_json(frontier_file(name))
        read = self._storage.read_json
        return None if index is None else FrontierLog.restore(name, index, read, subscription)

    def store_frontier(self, name: str, log: FrontierLog, stored: StoredFrontier) -> None:
        """Store a frontier under a name that no other run uses."""
        self._held = None
        for file, content in stored.files:
            self._storage.write_json(file, content)
        self._held = name, log

    def delete(self, names: Iterable[str]) -> None:
        """Delete files that no batch can need again."""
        self._storage.delete(names)

    def require_writer(self) -> None:
        """Raise WriterReplaced if a younger run has taken the checkpoint."""
        self._storage.require_writer()

    def _load(self, name: str, rebuild: Callable[[dict[str, Any]], _Stored]) -> _Stored | None:
        content = self._storage.read_json(name)
        return None if content is None else _rebuilt(name, lambda: rebuild(content))


def require_identity(
    files: JsonFiles, names: TopicNames, *, output: str | None
) -> QueryIdentity | None:
    """Do as `GateFiles.require_identity`; an output of None is not compared.

    Raises CheckpointMismatch if the file has other fields.
    """
    content = files.read_json(QUERY_FILE)
    if content is None:
        return None
    identity = _rebuilt(QUERY_FILE, lambda: QueryIdentity(**content))
    wanted = {"prefix": names.prefix, "topic_template": names.template, "output": output}
    for name, expected in wanted.items():
        if expected is not None and getattr(identity, name) != expected:
            raise ConfigError(
                f"the checkpoint belongs to another {name}",
                hint=f"Set the former {name}, or use a new checkpoint with a new output",
                found=getattr(identity, name),
                expected=expected,
            )
    return identity


def complete_from_us(files: JsonFiles) -> int | None:
    """Return from which commit time on the output is complete; None: from the first change on.

    That is also the answer for a checkpoint of an older program, which did not look.
    """
    begin_us: int | None = (files.read_json(START_FILE) or {}).get("complete_from_us")
    return begin_us


def newest_state(files: JsonFiles) -> State | None:
    """Return the newest state in a `gate` folder, or None before the first batch.

    Raises CheckpointMismatch if a file that it names is missing.
    """
    tried: int | None = None
    while True:
        batch = _newest(files, STATES, state_file)
        content = None if batch is None else files.read_json(state_file(batch))
        if batch is None or content is None:
            return None
        try:
            return _state(content, files, batch)
        except CheckpointMismatch:
            # A run may have stored the next states in the meantime, and deleted files that they do
            # not need.
            if batch == tried:
                raise
            tried = batch


def _state(content: dict[str, Any], files: JsonFiles, batch: int) -> State:
    return _rebuilt(state_file(batch), lambda: State.restore(content, files.read_json))


def _rebuilt(file: str, rebuild: Callable[[], _Stored]) -> _Stored:
    """Raise CheckpointMismatch where a file is JSON, and has not the fields that were stored."""
    try:
        return rebuild()
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise not_as_written(file, error) from error


def _newest(files: JsonFiles, folder: str, file: Callable[[int], str]) -> int | None:
    """Return the highest batch with a file, also if the listing lacks the youngest files."""
    listed = map(number_in, files.names(folder))
    newest = max((number for number in listed if number is not None), default=-1)
    while files.read_json(file(newest + 1)) is not None:
        newest += 1
    return None if newest < 0 else newest
