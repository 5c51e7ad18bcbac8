"""A Spanner that runs in process, with real change streams, for the official clients.

Use it from Python with `Simulator`, or as the program `tidegate-spanner-simulator`.
"""

if __name__ != "tidegate.spanner_simulator":
    raise ImportError(
        "import tidegate.spanner_simulator, not spanner_simulator: under two names every class "
        "would exist twice"
    )

from tidegate.spanner_simulator.simulator import PortTakenError, Simulator, SimulatorConfig

__all__ = ["PortTakenError", "Simulator", "SimulatorConfig"]
