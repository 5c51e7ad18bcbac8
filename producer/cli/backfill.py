"""`tidegate-producer backfill`: lets the fleet read a table while the stream runs.

Writes a request, which every worker reads, and waits until the fleet has taken it up.  Needs Kafka
and the registry, with a condition also Spanner, and joins no group.
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass, replace

from tidegate.lineage.slot_tokens import can_move
from tidegate.producer.backfill.read_partition import is_of_backfill
from tidegate.producer.backfill.requests import RunState, TableRequest, TableRequests
from tidegate.producer.backfill.table_run import RunChunk, RunWait, place_of
from tidegate.producer.cli.clients import kafka_options
from tidegate.producer.cli.fleet_reader import FleetReader, FleetRecords
from tidegate.producer.cli.report import Progress, Report, no_progress
from tidegate.producer.cli.source import channels_to
from tidegate.producer.cli.stream_states import Command, require_command
from tidegate.producer.config import ProducerConfig
from tidegate.producer.datastream.stream import FILES_DIALECT
from tidegate.producer.kafka.backfill_topic import read_requests, write_request
from tidegate.producer.kafka.topics import KafkaTopics
from tidegate.producer.record_filter import MOD_TYPES
from tidegate.producer.spanner.checks import require_condition
from tidegate.program.kafka_clients import list_topics
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.instants import NS_PER_US, format_rfc3339
from tidegate.schemas.progress import PRODUCER_FILTER
from tidegate.schemas.topics import ROOT_TOKEN, table_of

_AHEAD_S = 5.0
"""How far in the future a run begins, so that every worker knows of it; doubled each time."""
_AUTHOR = "_backfill"
"""In place of a worker's name; no worker's name begins with an underscore."""
_LOOK_S = 0.5
_FRESH_S = 1.2
"""After this time a `FleetReader` has again read the ends of the slots."""

_CHANGES = {
    RunState.STOPPED: Command.BACKFILL_STOP,
    RunState.RUNNING: Command.BACKFILL_RESUME,
    RunState.CANCELLED: Command.BACKFILL_CANCEL,
}


@dataclass(frozen=True, slots=True)
class BackfillReport(Report):
    """A table's newest run."""

    table: str
    run: int
    state: str
    """`waiting` until the fleet has taken it up; at its end `done`, `cancelled`, or `failed` if it
    could not read the whole table; otherwise the requested state."""
    chunks: int
    """Number of chunks begun so far."""
    is_taken_up: bool = True
    where: str = ""
    """The condition for rows; empty: all rows."""
    cause: str = ""
    """Why it has failed."""

    def shown(self) -> str:
        """Return the progress of the run, in one line."""
        if not self.is_taken_up:
            return f"{self.table}: run {self.run} was not taken up yet; is a worker running?"
        condition = f", of rows where {self.where}" if self.where else ""
        cause = f": {self.cause}" if self.cause else ""
        return (
            f"{self.table}: run {self.run} {self.state}, {self.chunks:,} chunks begun"
            f"{condition}{cause}"
        )


def start_backfill(
    config: ProducerConfig,
    table: str,
    *,
    chunk_rows: int,
    share: int,
    where: str = "",
    data_boost: bool = False,
    by: str = "",
    wait_s: float = 60.0,
    progress: Progress = no_progress,
) -> BackfillReport:
    """Request a run of a table, and wait until the fleet has taken it up, for at most `wait_s`.

    With `where` only rows that meet this condition are read; with `data_boost` by Spanner's Data
    Boost.  Raises ConfigError for a table that the stream does not publish, or whose last run has
    not ended, and for a condition that Spanner rejects; CommandRefused for a stream that is not
    being read; and UnreachableError.
    """
    with closing(FleetReader(config)) as reader:
        progress("reading the progress topic", 0)
        records = reader.read()
        _require_published(config, records, table)
        require_command(Command.BACKFILL, records, reader.members())
        requests = _read(config)
        newest = requests.newest(table)
        if newest is not None and _open_tokens(records, newest):
            raise ConfigError(
                f"a backfill of the table {table} goes on (run {newest.run})",
                hint="Let it end, or end it with --cancel",
            )
        if where:
            progress("checking the condition", 0)
            _require_condition(config, table, where)
        _ensure_topic(config)
        give_up_at, ahead_s = time.monotonic() + wait_s, _AHEAD_S
        while True:
            draft = TableRequest(
                table, 0, *_place_in(records, ahead_s), chunk_rows=chunk_rows, share=share,
                by=by, at_us=_now_us(), where=where, data_boost=data_boost,
            )  # fmt: skip
            _require_before_end(records, draft)
            request = _write(config, requests.newest(table), draft)
            progress(f"waiting for run {request.run} to be taken up", 0)
            while _may_begin(records, request) and time.monotonic() < give_up_at:
                reader.wait(_LOOK_S)
                records = reader.read()
            # The announcement and its parent's heartbeat are in two slots.
            reader.wait(_FRESH_S)
            records = reader.read()
            if _tokens(records, request) or time.monotonic() >= give_up_at:
                return _report(records, request)
            requests = _read(config)
            _require_unchanged(requests.newest(table), request)
            ahead_s *= 2  # no worker knew of it in time: that run never begins


def change_backfill(
    config: ProducerConfig,
    table: str,
    state: RunState | None,
    *,
    share: int | None = None,
    by: str = "",
) -> BackfillReport:
    """Stop, resume or cancel a table's run; with None return its progress.

    A `share` replaces the run's own, also for the current pause.  Raises ConfigError for a table
    without an open run, CommandRefused if the stream's state does not permit it, and
    UnreachableError.
    """
    with closing(FleetReader(config)) as reader:
        records = reader.read()
        request = _read(config).newest(table)
        if request is None:
            raise ConfigError(
                f"there was no request for a backfill of the table {table}",
                hint=f"Start one: tidegate-producer backfill {table}",
            )
        if state is None:
            return _report(records, request)
        if _tokens(records, request) and not _open_tokens(records, request):
            raise ConfigError(
                f"the backfill of the table {table} has ended (run {request.run})",
                hint=f"Start another: tidegate-producer backfill {table}",
            )
        require_command(_CHANGES[state], records, reader.members())
        changed = replace(
            request, state=state, share=share or request.share,
            by=by, at_us=_now_us(),
        )  # fmt: skip
        return _report(records, _write(config, request, changed))


def _require_condition(config: ProducerConfig, table: str, where: str) -> None:
    with closing(channels_to(config)) as channels:
        require_condition(channels, table=table, change_stream=config.change_stream, where=where)


def _read(config: ProducerConfig) -> TableRequests:
    names = config.topic_names
    return read_requests(
        names.backfills,
        bootstrap_servers=config.bootstrap_servers,
        group=names.group,
        options=kafka_options(config),
    )


def _write(
    config: ProducerConfig, before: TableRequest | None, request: TableRequest
) -> TableRequest:
    """Write a request that follows the table's request `before`; return the written request.

    A new run, whose number is 0, gets the next number.  Raises ConfigError, and writes nothing, if
    another command has written meanwhile: a worker that starts reads the newest request only.
    """

    def prepare(requests: TableRequests) -> TableRequest:
        _require_unchanged(requests.newest(request.table), before)
        run = request.run or 1 + max((former.run for former in requests.all), default=0)
        return replace(request, run=run)

    names = config.topic_names
    return write_request(
        names.backfills,
        prepare,
        transactional_id=f"{names.group}-{_AUTHOR}",
        bootstrap_servers=config.bootstrap_servers,
        group=names.group,
        options=kafka_options(config),
    )


def _require_unchanged(newest: TableRequest | None, before: TableRequest | None) -> None:
    if newest is not None and newest != before:
        raise ConfigError(
            (
                f"another command has changed the backfill of the table {newest.table} meanwhile "
                f"(run {newest.run}, {newest.state}, {newest.by})"
            ),
            hint="Look at it with --show, and run the command again",
        )


def _ensure_topic(config: ProducerConfig) -> None:
    topics = KafkaTopics(config.bootstrap_servers, options=kafka_options(config))
    topics.ensure_backfills(config.topic_names.backfills, replication=config.replication_factor)


def _require_published(config: ProducerConfig, records: FleetRecords, table: str) -> None:
    """Raise ConfigError for a table without a topic, and for a stream that accepts no rows."""
    if records.started.dialect == FILES_DIALECT:
        raise ConfigError(
            "a stream of files has no tables that can be read",
            hint="Start a backfill of the object in Datastream",
        )
    names = config.topic_names
    if names.is_data(names.backfills):
        raise ConfigError(
            f"under this topic_template {names.backfills} is the topic of a table",
            hint="A stream with another template can be backfilled",
        )
    visible = list_topics(config.bootstrap_servers, config.kafka_client_options())
    if table_of(table) != table or names.data(table) not in visible:
        tables = sorted(
            published
            for topic in visible
            if (published := names.table(topic)) is not None and table_of(published) == published
        )
        raise ConfigError(
            f"the stream does not publish the table {table}",
            hint=f"It publishes {', '.join(tables) or 'none'}",
        )
    head = f"{PRODUCER_FILTER}mod_types="
    chosen = [
        setting.removeprefix(head)
        for setting in records.started.filters
        if setting.startswith(head)
    ]
    if any(MOD_TYPES[0] not in setting.split(",") for setting in chosen):
        raise ConfigError(
            "the stream leaves INSERTs out (mod_types), and rows are published as INSERTs",
            hint="Backfill a stream that publishes them",
        )


def _place_in(records: FleetRecords, ahead_s: float) -> tuple[str, int]:
    """Return an open stream partition, and a commit time that it has not reached.

    Raises ConfigError if none is open.
    """
    watermarks = {
        token: snapshot.watermark_us
        for slot in records.view.slots
        for token, snapshot in (slot.tokens or {}).items()
        if token != ROOT_TOKEN and not is_of_backfill(token) and can_move(snapshot)
    }
    if not watermarks:
        raise ConfigError(
            "no stream partition of the change stream is read",
            hint="Start workers, and try again once they publish",
        )
    newest = max(watermarks.values())
    token = min(token for token, at_us in watermarks.items() if at_us == newest)
    # With any clocks of the workers, rows of a later run have later times.
    places = map(place_of, records.history.partitions)
    read = [place.read_ns for place in places if isinstance(place, RunChunk)]
    latest = max(_now_us(), newest, max(read, default=0) // NS_PER_US)
    return token, latest + int(ahead_s * 1_000_000)


def _may_begin(records: FleetRecords, request: TableRequest) -> bool:
    """Whether the run may still begin: its parent has neither begun it nor passed the time."""
    if _tokens(records, request):
        return False
    for slot in records.view.slots:
        parent = (slot.tokens or {}).get(request.parent)
        if parent is not None:
            return parent.watermark_us < request.start_us
    partition = records.history.partitions.get(request.parent)
    return partition is not None and partition.end_ns is None


def _require_before_end(records: FleetRecords, request: TableRequest) -> None:
    """Raise ConfigError if a bounded stream ends before a run begins."""
    end_ns = records.started.end_ns
    if end_ns is not None and request.start.start_ns > end_ns:
        raise ConfigError(
            f"the stream ends at {format_rfc3339(end_ns)}, before a backfill can begin",
            hint="Backfill a stream without an end",
        )


def _tokens(records: FleetRecords, request: TableRequest) -> list[str]:
    """Return the stream partitions of a run.

    Commands of earlier versions that read the requests at the same time could give one number to
    two runs: of another table, or of this one with another condition.
    """
    run_read = request.run, request.table, request.where
    return [
        token
        for token in records.history.partitions
        if (place := place_of(token)) is not None
        and (place.run, place.table, place.where) == run_read
    ]


def _open_tokens(records: FleetRecords, request: TableRequest) -> list[str]:
    partitions = records.history.partitions
    return [token for token in _tokens(records, request) if partitions[token].end_ns is None]


def _report(records: FleetRecords, request: TableRequest) -> BackfillReport:
    tokens = _tokens(records, request)
    state = request.state.value
    if not tokens:
        state = "waiting"
    elif not _open_tokens(records, request) and request.state is not RunState.CANCELLED:
        state = "done"
    places = [place_of(token) for token in tokens]
    chunks = sum(isinstance(place, RunChunk) for place in places)
    failures = (place.failure for place in places if isinstance(place, RunWait))
    cause = next(filter(None, failures), "")
    if _is_cut_off(records, tokens):
        cause = "the stream ended before the table was read"
    return BackfillReport(
        request.table, request.run, "failed" if cause else state, chunks,
        is_taken_up=bool(tokens), where=request.where, cause=cause,
    )  # fmt: skip


def _is_cut_off(records: FleetRecords, tokens: list[str]) -> bool:
    """Whether the end of a bounded stream ended a run: its stream partitions finish there."""
    end_ns, partitions = records.started.end_ns, records.history.partitions
    return end_ns is not None and any(partitions[token].end_ns == end_ns for token in tokens)


def _now_us() -> int:
    return time.time_ns() // NS_PER_US
