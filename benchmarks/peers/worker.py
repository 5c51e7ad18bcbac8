"""One worker of Tidegate's producer, as `tidegate-producer run` starts it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks.peers.backlog import STREAM
from tidegate.local_stack.parts.process import ProcessSpec
from tidegate.local_stack.parts.programs import DatabaseName
from tidegate.local_stack.parts.stack import LocalStack
from tidegate.producer.accelerator import SWITCH

AS_DEBEZIUM = {"envelope": "debezium", "value-format": "json", "key-format": "json"}
"""The settings with which it writes what Debezium's connector writes."""


def worker_program(
    stack: LocalStack,
    folder: Path,
    *,
    prefix: str,
    database: DatabaseName,
    start: str,
    topic_partitions: int,
    is_accelerated: bool,
    settings: Mapping[str, str],
) -> ProcessSpec:
    """Return the program that publishes from `start` on; `settings` are added to what it needs."""
    folder.mkdir(parents=True, exist_ok=True)
    flags = {
        "bootstrap-servers": stack.bootstrap_servers,
        "registry-url": stack.registry_url,
        "prefix": prefix,
        "project": database.project,
        "instance": database.instance,
        "database": database.database,
        "change-stream": STREAM,
        "spanner-emulator-host": database.address,
        "worker": "w1",
        "start": start,
        "topic-partitions": str(topic_partitions),
        **settings,
    }
    return ProcessSpec(
        name=prefix,
        command=[
            *(sys.executable, "-m", "tidegate.producer", "run"),
            *(part for name, value in flags.items() for part in (f"--{name}", value)),
        ],
        log=folder / "worker.log",
        environ={**os.environ, SWITCH: "" if is_accelerated else "off"},
        folder=folder,
    )
