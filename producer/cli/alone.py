"""The group of a stopped fleet: waits until it is empty, and joins it as its only member."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

from tidegate.producer.cli.clients import kafka_options
from tidegate.producer.cli.report import Progress
from tidegate.producer.cli.sole_runs import SoleRun
from tidegate.producer.core.sole_workers import SoleWorker
from tidegate.producer.driver.loop import FleetWorker
from tidegate.producer.kafka.admin import RetryingAdmin
from tidegate.producer.kafka.group import group_members
from tidegate.program.kafka_clients import admin_config
from tidegate.schemas.errors import ConfigError, InvariantViolation

if TYPE_CHECKING:
    from tidegate.producer.cli.worker_parts import Parts
    from tidegate.producer.config import ProducerConfig


LEAVING_S = 5.0
"""Time that Kafka may need beyond a time-out."""
_JOIN_PATIENCE_S = 120.0
_LOOK_S = 1.0

_Run = TypeVar("_Run", bound="SoleRun")


def require_no_worker(
    config: ProducerConfig, progress: Progress, *, former_run: str | None
) -> None:
    """Wait until workers that have ended have left the group; raise ConfigError if some stay.

    A member named `former_run` is an earlier run of the same command; None for a command that does
    not join.
    """
    group = config.topic_names.group
    admin = RetryingAdmin(admin_config(config.bootstrap_servers, kafka_options(config)))
    give_up_at = time.monotonic() + config.session_timeout_ms / 1_000 + LEAVING_S
    while members := [name for name in group_members(admin, group) if name != former_run]:
        if time.monotonic() > give_up_at:
            raise ConfigError(
                f"workers run in group {group}: {', '.join(members)}",
                hint=(
                    "Stop all workers, then run it again; a worker leaves after session_timeout_ms"
                ),
            )
        progress(f"waiting for workers to leave the group: {', '.join(members)}", 0)
        time.sleep(_LOOK_S)


def join(
    parts: Parts,
    exits: ExitStack,
    core: SoleWorker,
    run: type[_Run],
    *,
    progress: Progress,
    redrives: bool = False,
) -> _Run:
    """Return the run of a core once it owns all slots; `exits` closes it."""

    def open_no_reader(*_: object) -> Any:
        raise InvariantViolation("a worker that reads nothing opened a reader")

    fleet_worker = FleetWorker(
        core,
        publisher=parts.publisher(redrives=redrives),
        open_reader=open_no_reader,
        open_stream_start=parts.open_stream_start,
        release_budget=lambda _sizes: None,
    )
    fleet_worker.attach(parts.membership(fleet_worker))
    joining = run(fleet_worker, core, patience_s=_JOIN_PATIENCE_S)
    exits.callback(joining.close)
    progress("joining the group", 0)
    joining.join()
    return joining
