"""`tidegate-producer`: parse, call, map errors to exit codes; nothing else.

0 done (drained), 1 failure, 2 usage, settings or something unreachable, 70 a broken invariant.
"""

from __future__ import annotations

import os
import signal
from typing import Any

import typer

from tidegate.producer.config import ProducerConfig
from tidegate.schemas.program import log_to_stderr, run_program
from tidegate.schemas.settings_flags import ConfigFile, with_flags

__all__ = ["app", "main"]

app = typer.Typer(
    help="Publish a Spanner change stream to Kafka, in commit order per key, exactly once.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
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
    from tidegate.producer.app import start  # noqa: PLC0415 - loads gRPC, see `main`

    worker = start(settings)

    def on_signal(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        worker.request_drain()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    worker.run()


@app.command(name="check")
@with_flags(ProducerConfig)
def check_command(config: ConfigFile = None, **flags: Any) -> None:
    """Check settings, Spanner, Kafka and the registry, and change nothing."""
    settings = ProducerConfig.load(config, **flags)
    log_to_stderr(settings.log_level)
    from tidegate.producer.app import check  # noqa: PLC0415 - loads gRPC, see `main`

    for line in check(settings):
        typer.echo(line)
