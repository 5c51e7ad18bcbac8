"""A Spanner that runs in process, with real change streams, for the official clients.

Use it from Python with `Simulator`, or as the program `spanner-simulator`.  The names are loaded on
first use, so that the pytest plug-in costs nothing in a run without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spanner_simulator.simulator import PortTakenError, Simulator, SimulatorConfig

__all__ = ["PortTakenError", "Simulator", "SimulatorConfig"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from spanner_simulator import simulator  # noqa: PLC0415  # loads gRPC and Google's messages

    return getattr(simulator, name)
