"""Chaos on real parts: `python -m tests.chaos --seed 7 --minutes 3 [--json]`.

Kills, stops and replaces workers and consumer, adds and retires a worker, restarts the broker and
the registry, and checks what Kafka and Delta then hold; `--only consumer --rate 60` leaves the
fleet alone and gives the consumer more to do.  `--calm 0.4` ends with a stretch without faults, in
which no memory, no number of files or threads and no state may grow.
Standard output gets the tables (or JSON), standard error what happens meanwhile.  Exit
code: 0 all figures 0, 1 not, 130 interrupted.
"""

from __future__ import annotations

import os
from typing import Annotated

import typer

from tests.chaos.faults import KINDS, LANES


def main(
    *,
    seed: Annotated[int, typer.Option(min=0, help="Decides faults, instants, victims, work.")] = 7,
    minutes: Annotated[float, typer.Option(min=0.2, help="How long faults go on.")] = 3.0,
    workers: Annotated[int, typer.Option(min=2, help="Producer workers.")] = 3,
    only: Annotated[
        list[str] | None, typer.Option(help="Only this kind or lane; may be repeated.")
    ] = None,
    rate: Annotated[float, typer.Option(min=1.0, help="Transfers per second.")] = 15.0,
    calm: Annotated[
        float, typer.Option(min=0, max=0.9, help="Share of the minutes without faults, at the end.")
    ] = 0.0,
    pause: Annotated[float, typer.Option(min=0, help="More seconds between two faults.")] = 0.0,
    query_transport: Annotated[str, typer.Option(help="Setting of the workers.")] = "h2",
    keep: Annotated[bool, typer.Option("--keep", help="Keep output and logs.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Break real parts for some minutes, let them heal, and check what they hold."""
    wanted = set(only or ())
    if unknown := wanted - {*KINDS, *LANES}:
        known = f"the kinds are {', '.join(KINDS)}; the lanes are {', '.join(LANES)}"
        raise typer.BadParameter(f"no {min(unknown)}: {known}", param_hint="--only")
    kinds = tuple(kind for kind, habit in KINDS.items() if wanted & {kind, habit.lane})
    # gRPC's core would write lines of its own among ours; it looks at this once, when imported.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from tests.chaos.program import run_program
    from tests.chaos.run import Options, run_chaos

    options = Options(
        seed=seed,
        minutes=minutes,
        workers=workers,
        only=kinds,
        rate=rate,
        query_transport=query_transport,
        calm=calm,
        pause_s=pause,
    )
    run_program(
        lambda folder, view: run_chaos(options, folder=folder, view=view),
        keep=keep,
        as_json=as_json,
    )


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
    app.command()(main)
    app()
