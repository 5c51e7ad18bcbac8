"""The program `tidegate-spanner-simulator`: flags in, one line of JSON out when ready.

Ends cleanly on SIGTERM and SIGINT. A port that is taken, or a flag that makes no sense, is one line
on standard error and exit code 2.
"""

from __future__ import annotations

import asyncio
import json
import signal
from typing import Annotated

import typer

from tidegate.spanner_simulator.control import Verbs
from tidegate.spanner_simulator.simulator import PortTakenError, SimulatorConfig, serve

__all__ = ["main"]

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def _announce(grpc_address: str, control_address: str) -> None:
    typer.echo(json.dumps({"grpc": grpc_address, "control": control_address}))


async def _run(config: SimulatorConfig) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await serve(config, Verbs(), _announce, stop)


@app.command()
def run(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="gRPC port; 0: any free one.")] = 0,
    control_port: Annotated[
        int, typer.Option(min=0, max=65535, help="HTTP control port; 0: any free one.")
    ] = 0,
    seed: Annotated[int, typer.Option(help="Seed of all chance.")] = 0,
    stream_partitions: Annotated[
        int, typer.Option(min=1, max=10_000, help="Stream partitions of a new change stream.")
    ] = 2,
    equal_timestamps: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="Probability that concurrent transactions share a commit timestamp."
        ),
    ] = 0.0,
    linger_ms: Annotated[
        int, typer.Option(min=0, max=1000, help="How long a waiting query lets news gather.")
    ] = 5,
    separate_children: Annotated[
        bool, typer.Option(help="Announce each child stream partition in a record of its own.")
    ] = False,
) -> None:
    """Run a Spanner with real change streams, for SPANNER_EMULATOR_HOST."""
    config = SimulatorConfig(
        host=host,
        port=port,
        control_port=control_port,
        seed=seed,
        stream_partitions=stream_partitions,
        equal_timestamps=equal_timestamps,
        linger_ms=linger_ms,
        separate_children=separate_children,
    )
    try:
        asyncio.run(_run(config))
    except PortTakenError as error:
        typer.echo(
            f"cannot listen on {error}: the address is in use; choose another port", err=True
        )
        raise typer.Exit(2) from error


def main() -> None:
    """Entry point of the console script."""
    app()
