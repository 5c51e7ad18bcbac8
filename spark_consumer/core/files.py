"""Names of the files below a checkpoint's `gate` folder."""

from __future__ import annotations

__all__ = [
    "PLANS",
    "QUERY_FILE",
    "SEGMENTS",
    "STATES",
    "frontier_file",
    "number_in",
    "plan_file",
    "segment_file",
    "state_file",
]

QUERY_FILE = "query.json"
PLANS = "plans"
STATES = "states"
SEGMENTS = "segments"


def plan_file(batch: int) -> str:
    """Return the file of a batch's plan."""
    return f"{PLANS}/{batch}.json"


def state_file(batch: int) -> str:
    """Return the file of the state after a batch."""
    return f"{STATES}/{batch}.json"


def frontier_file(name: str) -> str:
    """Return the file of a frontier, by the name in its plan."""
    return f"frontiers/{name}.json"


def segment_file(name: str) -> str:
    """Return the folder of a segment."""
    return f"{SEGMENTS}/{name}"


def number_in(file_name: str) -> int:
    """Return the number of a plan's or state's file name."""
    return int(file_name.removesuffix(".json"))
