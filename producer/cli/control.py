"""`tidegate-producer pause`, `resume` and `drain`: operators' commands to a running fleet.

Each writes a record into the progress topic, which every worker reads.  They need Kafka and the
registry, not Spanner, and join no group.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace

from tidegate.lineage.fleet_status import FleetStatus
from tidegate.producer.cli.clients import kafka_options, schema_registry
from tidegate.producer.cli.command_sender import send_commands
from tidegate.producer.cli.fleet_reader import FleetReader, FleetRecords
from tidegate.producer.cli.report import Progress, Report, no_progress
from tidegate.producer.cli.stream_states import Command, StreamState, require_command, stream_state
from tidegate.producer.config import ProducerConfig
from tidegate.producer.kafka.publisher import KafkaPublisher
from tidegate.producer.translation.subjects import register
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.instants import NS_PER_US
from tidegate.schemas.progress import (
    PROGRESS_VERSION,
    ControlState,
    ProgressBody,
    ProgressRecord,
    StreamControl,
    WorkerDrain,
)
from tidegate.schemas.progress_codec import KEY_SCHEMAS, RECORD_SCHEMAS

_FIRST_VERSION = 4
_LOOK_S = 0.5
_FRESH_S = 1.2
"""After this time a `FleetReader` has again read the ends of the slots."""
_AUTHOR = "_control"
"""In place of a worker's name; no worker's name begins with an underscore."""


@dataclass(frozen=True, slots=True)
class ControlReport(Report):
    """The result of a pause or a resumption."""

    stream: str
    state: StreamState
    """The stream's state when the command ended."""
    written: bool
    """Whether a record was written; False if the last one has the same state."""
    draining: tuple[int, ...] = ()
    """Slots whose owner has not confirmed yet that nothing of them is read."""
    is_done: bool = True
    """Whether the requested state was reached; True if the command did not wait for it."""

    def shown(self) -> str:
        """Return the state, or the slots that are still being read."""
        if not self.is_done and not self.draining:
            return f"{self.state.value}: another command has changed the state meanwhile"
        if not self.is_done:
            slots = ", ".join(map(str, self.draining))
            return f"{self.state.value}: still read are the slots {slots}"
        return self.state.value if self.written else f"{self.state.value}, as before"


@dataclass(frozen=True, slots=True)
class DrainReport(Report):
    """The result of a drain."""

    workers: tuple[str, ...]
    remaining: tuple[str, ...]
    """Workers that were still in the group when the command ended."""
    waited: bool

    @property
    def is_done(self) -> bool:
        """Whether all have left, unless the command did not wait for it."""
        return not (self.waited and self.remaining)

    def as_json(self) -> str:
        """Return the report as one line of JSON."""
        return json.dumps({**asdict(self), "is_done": self.is_done}, ensure_ascii=False)

    def shown(self) -> str:
        """Return a line for each worker, or the workers that are still in the group."""
        if not self.is_done:
            return (
                f"still in the group: {', '.join(self.remaining)}. A worker that was just starting "
                "does not obey: run it again"
            )
        verb = "has left" if self.waited else "is to leave"
        return "\n".join(f"{worker} {verb}" for worker in self.workers)


def control(
    config: ProducerConfig,
    state: ControlState,
    *,
    by: str = "",
    wait_s: float = 0.0,
    progress: Progress = no_progress,
) -> ControlReport:
    """Pause the stream, or resume it; wait until a pause is complete, for at most `wait_s`.

    A pause of a paused stream writes nothing.  Raises ConfigError for a stream that has not begun,
    or whose fleet writes older progress records; CommandRefused if its state does not permit the
    command; UnreachableError; CommandNotWritten.
    """
    command = Command.PAUSE if state is ControlState.PAUSED else Command.RESUME
    with closing(FleetReader(config)) as reader:
        progress("reading the progress topic", 0)
        _require_version(reader.read())
        require_command(command, reader.read(), reader.members())

        def say(records: FleetRecords) -> list[ProgressBody]:
            # Again: another command may have been committed since.
            require_command(command, records, reader.members())
            before = records.view.control
            is_said = (ControlState.RUNNING if before is None else before.state) is state
            number = 1 + (0 if before is None else before.number)
            return [] if is_said else [StreamControl(number, state, by, _now_us())]

        written = _write(config, reader, say)
        give_up_at = time.monotonic() + wait_s
        while True:
            reader.wait(_FRESH_S)
            status = reader.read().fleet()
            report = _report(status, reader.members(), state, is_new=bool(written))
            is_over = status.control is not None and status.control.state is not state
            if wait_s <= 0 or report.is_done or is_over or time.monotonic() > give_up_at:
                return replace(report, is_done=report.is_done or wait_s <= 0)
            progress("slots that are still read", len(report.draining))


def drain(
    config: ProducerConfig,
    workers: Sequence[str],
    *,
    by: str = "",
    wait_s: float = 0.0,
    progress: Progress = no_progress,
) -> DrainReport:
    """Let workers publish their read records and leave; wait for that, for at most `wait_s`.

    Raises ConfigError for a worker that is not in the group, and as `control` does.
    """
    with closing(FleetReader(config)) as reader:
        progress("reading the progress topic", 0)
        _require_version(reader.read())
        named = tuple(dict.fromkeys(workers))
        members = reader.members()
        require_command(Command.DRAIN, reader.read(), members)
        unknown = [worker for worker in named if worker not in members]
        if unknown:
            present = ", ".join(members) or "nobody"
            raise ConfigError(
                f"no worker {', '.join(unknown)} is in the group", hint=f"In it: {present}"
            )
        drains = [WorkerDrain(worker, by, _now_us()) for worker in named]
        _write(config, reader, lambda _records: drains)
        give_up_at, remaining = time.monotonic() + wait_s, named
        while wait_s > 0 and remaining and time.monotonic() <= give_up_at:
            progress(f"waiting for {', '.join(remaining)} to leave", 0)
            time.sleep(_LOOK_S)
            members = reader.members()
            # A worker that was absent once has left, even if its supervisor has restarted it since.
            remaining = tuple(worker for worker in remaining if worker in members)
        return DrainReport(named, remaining, waited=wait_s > 0)


def _require_version(records: FleetRecords) -> None:
    """Raise ConfigError if the fleet writes records that readers of an older version follow."""
    versions = [slot.version for slot in records.view.slots if slot.version]
    lowest = min(versions, default=records.version)
    if lowest < _FIRST_VERSION:
        raise ConfigError(
            f"the fleet writes progress records of version {lowest}, which cannot hold the command",
            hint=(
                f"Upgrade all workers and readers, then set progress_version to {_FIRST_VERSION} "
                "and restart the workers"
            ),
        )


def _write(
    config: ProducerConfig,
    reader: FleetReader,
    say: Callable[[FleetRecords], Sequence[ProgressBody]],
) -> Sequence[ProgressRecord]:
    """Commit the records that `say` makes from all earlier records; return them."""
    names = config.topic_names
    registry = schema_registry(config)
    ids = (
        register(registry, names.key_subject(names.progress), KEY_SCHEMAS[PROGRESS_VERSION]),
        register(registry, names.value_subject(names.progress), RECORD_SCHEMAS[PROGRESS_VERSION]),
    )
    publisher = KafkaPublisher(
        bootstrap_servers=config.bootstrap_servers,
        transactional_id=f"{names.group}-{_AUTHOR}",
        transaction_timeout_ms=config.transaction_timeout_ms,
        progress_topic=names.progress,
        topic_partitions={},
        progress_schema_ids={PROGRESS_VERSION: ids},
        options=kafka_options(config),
    )

    def prepare() -> list[ProgressRecord]:
        records = reader.read_past_open_transactions()
        return [ProgressRecord(records.epoch, _AUTHOR, body) for body in say(records)]

    return send_commands(publisher, prepare)


def _report(
    status: FleetStatus,
    members: Sequence[str],
    state: ControlState,
    *,
    is_new: bool,
) -> ControlReport:
    is_read = state is ControlState.PAUSED and bool(members)
    draining = tuple(slot.slot for slot in status.slots if not slot.is_paused) if is_read else ()
    is_seen = status.is_to_pause is (state is ControlState.PAUSED)
    return ControlReport(
        status.stream,
        stream_state(status, members),
        is_new,
        draining,
        is_done=is_seen and not draining,
    )


def _now_us() -> int:
    return time.time_ns() // NS_PER_US
