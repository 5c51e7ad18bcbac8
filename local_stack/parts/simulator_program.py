"""The program `tidegate-spanner-simulator`: another name for `spanner-simulator`."""

from __future__ import annotations

import runpy
import sys
from importlib.util import find_spec


def main() -> None:
    """Run the simulator with the arguments of this process; exit 2 where it is not installed."""
    try:
        module = find_spec("spanner_simulator.__main__")
    except ModuleNotFoundError:
        module = None
    if module is None:
        sys.stderr.write(
            'The simulator is not installed. Install it with: pip install "tidegate[local]"\n'
        )
        raise SystemExit(2)
    runpy.run_module("spanner_simulator", run_name="__main__", alter_sys=True)
