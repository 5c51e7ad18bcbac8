"""Chaos for the consumer alone: `python -m tests.chaos.consumer --seed 7 --minutes 5 [--json]`.

The run of `tests.chaos` under more load, with the faults of the consumer only: it is killed in
every step of a batch, stopped, and replaced while it stands still.  Standard output gets the tables
(or JSON), standard error what happens meanwhile.  Exit code: 0 all figures 0, 1 not, 130
interrupted.
"""

from __future__ import annotations

import os
from typing import Annotated

import typer

from tests.chaos.faults import KINDS

__all__ = ["main"]


def main(
    *,
    seed: Annotated[int, typer.Option(min=0, help="Decides faults, instants, victims, work.")] = 7,
    minutes: Annotated[float, typer.Option(min=0.2, help="How long faults go on.")] = 5.0,
    rate: Annotated[float, typer.Option(min=1.0, help="Transfers per second.")] = 60.0,
    keep: Annotated[bool, typer.Option("--keep", help="Keep output and logs.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Break the consumer for some minutes under load, let it heal, and check what Delta holds."""
    # gRPC's core would write lines of its own among ours; it looks at this once, when imported.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from tests.chaos.program import run_program
    from tests.chaos.run import Options, run_chaos

    kinds = tuple(kind for kind, habit in KINDS.items() if habit.lane == "consumer")
    options = Options(seed=seed, minutes=minutes, workers=2, only=kinds, rate=rate)
    run_program(
        lambda folder, view: run_chaos(options, folder=folder, view=view),
        keep=keep,
        as_json=as_json,
    )


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    app.command()(main)
    app()
