"""`tidegate-producer accept-gap`: continues after changes that expired before they were read.

The fleet is stopped.  The command finds the stream partitions that an expired position stops, asks
Spanner which changes can still be read, and shows which would be lost.  Once that is accepted, it
joins the group as its only member and records the gaps in one transaction.  If it ends before the
commit, nothing has changed.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from tidegate.lineage.errors import is_expired
from tidegate.lineage.fleet_view import FleetView
from tidegate.producer.cli.alone import join, require_no_worker
from tidegate.producer.cli.environment import Environment, find_environment
from tidegate.producer.cli.fleet_reader import FleetReader
from tidegate.producer.cli.report import Progress, Report, no_progress
from tidegate.producer.cli.sole_runs import GapAcceptor, find_gap
from tidegate.producer.cli.stream_states import Command, require_command
from tidegate.producer.cli.worker_parts import prepare
from tidegate.producer.config import ProducerConfig
from tidegate.producer.core.sole_workers import GapAcceptingWorker
from tidegate.producer.errors import QueryError
from tidegate.producer.spanner.checks import setup_error
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.instants import NS_PER_US, US_PER_SECOND, format_rfc3339
from tidegate.schemas.progress import PartitionGap, TokenSnapshot
from tidegate.schemas.topics import slot_of

NAME = "accept-gap"
"""Its worker name: a second run fences the first one, and aborts its open transaction."""

MARGIN_S = 600
"""Default time for workers to start before the new position expires as well."""

_VERSION = 3


@dataclass(frozen=True, slots=True)
class ExpiredPartition:
    """A stream partition and its lost changes: `lost_from` <= commit time < `lost_until`."""

    token: str
    slot: int
    lost_from: str
    lost_until: str
    lost_s: float
    stopped_since: str | None
    """When a heartbeat first reported the stop, as far as that is still known."""
    reason: str


@dataclass(frozen=True, slots=True)
class GapReport(Report):
    """The accepted gaps, or those that would be accepted."""

    stream: str
    dry_run: bool
    accepted_by: str
    partitions: list[ExpiredPartition] = field(default_factory=list)
    accepted: bool = False

    def shown(self) -> RenderableType:
        """Return a table of the changes that are lost, or would be."""
        verb = "is lost" if self.accepted else "would be lost"
        table = Table("token", "slot", "from", "until", "stopped since", title=f"What {verb}")
        for expired in self.partitions:
            since = expired.stopped_since or "unknown"
            table.add_row(
                escape(expired.token),
                str(expired.slot),
                expired.lost_from,
                expired.lost_until,
                since,
            )
        if not self.accepted:
            return table
        return Group(table, f"Accepted by {escape(self.accepted_by)}. Start the workers now.")


def accept_gap(
    config: ProducerConfig,
    *,
    token: str = "",
    accepted_by: str = "",
    margin_s: int = MARGIN_S,
    dry_run: bool = False,
    confirm: Callable[[GapReport], bool],
    progress: Progress = no_progress,
) -> GapReport:
    """Accept the loss of expired changes, of one stream partition or of all.

    `confirm` is shown what would be lost; nothing is changed if it returns false.  A dry run
    creates no topic, registers no schema and asks nothing.  `progress` is called with the present
    step and the number of completed stream partitions.  Raises ConfigError while workers are in the
    group, and for a stream partition that is not stopped by an expired position; CommandRefused if
    none is; EndedInGap for one that cannot be read any further; GapNotAccepted if the transaction
    failed.
    """
    if config.progress_version < _VERSION:
        raise ConfigError(
            f"progress_version {config.progress_version} cannot record accepted gaps",
            hint="Upgrade all workers and readers, then set it to 3",
        )
    config = config.model_copy(update={"worker": NAME, "poison": "stop"})
    with ExitStack() as exits:
        environment = exits.enter_context(closing(find_environment(config)))
        if config.files is not None:
            raise ConfigError(
                "nothing expires unread in a stream of files",
                hint="A stream partition that stopped names its file: replace the file, or park",
            )
        if environment.source.description.has_key_moves:
            raise ConfigError(
                "a gap cannot be accepted where keys move between stream partitions",
                hint=(
                    "What began in the gap would always be missing: start a new stream, with "
                    "another prefix"
                ),
            )
        progress("reading the progress topic", 0)
        with closing(FleetReader(config)) as reader:
            fleet = reader.read()
            require_command(Command.ACCEPT_GAP, fleet, reader.members())
        view, started = fleet.view, fleet.started
        chosen = _choose(view, token)
        find = partial(
            find_gap,
            environment.source.stream,
            margin_us=margin_s * US_PER_SECOND,
            end_ns=started.end_ns,
            accepted_by=accepted_by,
        )
        gaps = _find_gaps(environment, chosen, find, progress)
        partitions = [_described(view, gap) for gap in gaps]
        report = GapReport(started.stream, dry_run, accepted_by, partitions)
        if dry_run or not confirm(report):
            return report
        require_no_worker(config, progress, former_run=NAME)
        parts = prepare(environment)
        core = parts.worker(GapAcceptingWorker)
        join(parts, exits, core, GapAcceptor, progress=progress).accept(tuple(gaps))
        return GapReport(started.stream, dry_run, accepted_by, partitions, accepted=True)


def _choose(view: FleetView, token: str) -> list[TokenSnapshot]:
    """Return the expired stream partitions, the slowest first; ConfigError for another token."""
    snapshots = {
        name: snapshot for slot in view.slots for name, snapshot in (slot.tokens or {}).items()
    }
    if token and token not in snapshots:
        raise ConfigError(
            "there is no such stream partition, or it has finished",
            hint="See tidegate-producer status",
            token=token,
        )
    if token and not is_expired(snapshots[token].stopped):
        reason = snapshots[token].stopped
        message = (
            "this stream partition is not stopped"
            if reason is None
            else "this stream partition is not stopped by an expired position"
        )
        raise ConfigError(
            message,
            hint="Only what has expired can be accepted as lost; remove the cause of anything else",
            token=token,
            **({"reason": reason} if reason else {}),
        )
    expired = [snapshot for snapshot in snapshots.values() if is_expired(snapshot.stopped)]
    chosen = [snapshots[token]] if token else expired
    return sorted(chosen, key=lambda snapshot: (snapshot.watermark_us, snapshot.token))


def _find_gaps(
    environment: Environment,
    chosen: list[TokenSnapshot],
    find: Callable[..., Awaitable[PartitionGap]],
    progress: Progress,
) -> list[PartitionGap]:
    """Ask Spanner for the gaps; raises as `find_gap` and, for a query, `setup_error`."""
    gaps: list[PartitionGap] = []

    async def find_all() -> None:
        for number, snapshot in enumerate(chosen):
            progress("asking Spanner what can be read", number)
            gaps.append(await find(snapshot, now_us=time.time_ns() // NS_PER_US))

    try:
        environment.source.tasks.run(find_all)
    except QueryError as error:
        raise setup_error(error) from error
    return gaps


def _described(view: FleetView, gap: PartitionGap) -> ExpiredPartition:
    number = slot_of(gap.token, len(view.slots))
    slot = view.slots[number]
    snapshot = (slot.tokens or {})[gap.token]
    since_us = slot.stopped_since_us(gap.token)
    return ExpiredPartition(
        token=gap.token,
        slot=number,
        lost_from=_instant(gap.from_us),
        lost_until=_instant(gap.until_us),
        lost_s=round((gap.until_us - gap.from_us) / US_PER_SECOND, 3),
        stopped_since=None if since_us is None else _instant(since_us),
        reason=snapshot.stopped or "",
    )


def _instant(us: int) -> str:
    return format_rfc3339(us * NS_PER_US)
