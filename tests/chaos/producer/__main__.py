"""Chaos for the fleet alone: `python -m tests.chaos.producer --seed 7 --minutes 5 [--json]`.

Real Kafka and registry, the simulator under all its faults, no Spark: workers are killed, stopped
and replaced, added and taken away, the broker goes away, columns and tables come and go.  Then a
judge without Tidegate's code reads all topics.  Standard output gets the tables (or JSON), standard
error what happens meanwhile.  Exit code: 0 all figures 0, 1 not, 130 interrupted.
"""

from __future__ import annotations

import os
from typing import Annotated

import typer

from tidegate.local_stack.demo.bank import Dialect


def settings_of(texts: list[str]) -> dict[str, str]:
    """Return settings given as NAME=VALUE; raises typer.BadParameter for another text."""
    settings = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--setting")
        settings[name] = value
    return settings


def main(
    *,
    seed: Annotated[int, typer.Option(min=0, help="Decides faults, instants, victims, work.")] = 7,
    minutes: Annotated[float, typer.Option(min=0.5, help="How long faults go on.")] = 5.0,
    setting: Annotated[
        list[str] | None,
        typer.Option(help="A setting of the workers, NAME=VALUE; may be repeated."),
    ] = None,
    mixed: Annotated[
        bool,
        typer.Option(
            "--mixed", help="Every second process writes version 1 of the progress records."
        ),
    ] = False,
    moves: Annotated[
        bool,
        typer.Option("--moves", help="Keys move between stream partitions (MUTABLE_KEY_RANGE)."),
    ] = False,
    dialect: Annotated[
        Dialect, typer.Option(help="Of the database.", case_sensitive=False)
    ] = Dialect.GOOGLESQL,
    backfill: Annotated[
        bool | None,
        typer.Option(
            "--backfill/--no-backfill",
            help="Tables have rows that the stream begins with; unset: the seed decides.",
        ),
    ] = None,
    sasl_ssl: Annotated[
        bool, typer.Option("--sasl-ssl", help="Workers use Kafka with TLS and a login.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the logs.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Break a fleet and what it depends on for some minutes, let it heal, and check its topics."""
    settings = settings_of(setting or [])
    if mixed and settings.get("poison") == "park":
        raise typer.BadParameter("version 1 cannot hold parked keys", param_hint="--mixed")
    if moves and settings.get("poison") == "park":
        raise typer.BadParameter("nothing is parked where keys move", param_hint="--moves")
    # gRPC's core would write lines of its own among ours; it looks at this once, when imported.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from tests.chaos.producer.run import Options, run_chaos
    from tests.chaos.program import run_program

    options = Options(
        seed=seed,
        minutes=minutes,
        settings=settings,
        is_mixed=mixed,
        has_moves=moves,
        dialect=dialect,
        backfill=backfill,
        has_login=sasl_ssl,
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
