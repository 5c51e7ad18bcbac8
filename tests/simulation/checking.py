"""The checkers by name: one function each, in the module of the promise that it belongs to.

P7, that Spanner is only read, needs none: nothing in a run has a way to write to it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator

from tests.simulation.checkers import (
    p1_once,
    p2_key_order,
    p3_plain_records,
    p4_watermark,
    p5_output,
    p6_nothing_silent,
    workers,
)
from tests.simulation.history import History, Violation

_MODULES = (
    p1_once, p2_key_order, p3_plain_records, p4_watermark, p5_output, p6_nothing_silent, workers,
)  # fmt: skip
CHECKERS: dict[str, Callable[[History], Iterator[Violation]]] = {
    name: check
    for module in _MODULES
    for name, check in inspect.getmembers(module, inspect.isfunction)
    if check.__module__ == module.__name__ and not name.startswith("_")
}  # every public function of these modules


def violations(history: History) -> dict[str, list[Violation]]:
    """Return what each checker finds; those that find nothing are left out."""
    found = {name: list(check(history)) for name, check in CHECKERS.items()}
    return {name: list_ for name, list_ in found.items() if list_}
