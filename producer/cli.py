"""`tidegate-producer`: parse, call, map errors to exit codes; nothing else.

0 done (drained), 1 failure, 2 usage, settings or something unreachable, 70 a broken invariant.
"""

from __future__ import annotations

import os
from typing import Any

import typer

from tidegate.producer.config import ProducerConfig
from tidegate.program.command_line import new_app, run_program
from tidegate.program.extras import Extra
from tidegate.program.logs import log_to_stderr
from tidegate.program.settings_flags import ConfigFile, with_flags

__all__ = ["app", "main"]

app = new_app(
    description="Publish a Spanner change stream to Kafka, in commit order per key, exactly once.",
    extra=Extra("producer", ("google.cloud.spanner_v1", "grpc")),
)


def main() -> None:
    """Entry point of the console script."""
    # gRPC's core would write lines of its own among ours; it looks at this once, when imported.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    run_program(app)


@app.command()
@with_flags(ProducerConfig)
def run(config: ConfigFile = None, **flags: Any) -> None:
    """Run one worker until SIGTERM or SIGINT, which drain; a second signal ends it at once."""
    settings = ProducerConfig.load(config, **flags)
    log_to_stderr(settings.log_level)
    from tidegate.producer.commands import run as command  # noqa: PLC0415 - loads gRPC, see `main`

    command.run(settings)


@app.command()
@with_flags(ProducerConfig)
def check(config: ConfigFile = None, **flags: Any) -> None:
    """Check settings, Spanner, Kafka and the registry, and change nothing."""
    settings = ProducerConfig.load(config, **flags)
    log_to_stderr(settings.log_level)
    from tidegate.producer.commands import check as command  # noqa: PLC0415 - loads gRPC, as above

    for line in command.check(settings):
        typer.echo(line)
