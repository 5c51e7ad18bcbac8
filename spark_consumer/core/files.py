"""Names of the files below a checkpoint's `gate` folder."""

from __future__ import annotations

__all__ = [
    "PLANS",
    "QUERY_FILE",
    "SEGMENTS",
    "START_FILE",
    "STATES",
    "frontier_file",
    "number_in",
    "plan_file",
    "segment_file",
    "segment_name",
    "state_file",
]

QUERY_FILE = "query.json"
START_FILE = "start.json"
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


def segment_name(planned: str, *, writer: int) -> str:
    """Return the name under which a run writes a segment: no other run writes to it."""
    return f"{planned}/{writer}"


def segment_file(name: str) -> str:
    """Return the folder of a segment, with what other runs have written for it."""
    planned, _, _ = name.partition("/")
    return f"{SEGMENTS}/{planned}"


def number_in(file_name: str) -> int:
    """Return the number of a plan's or state's file name."""
    return int(file_name.removesuffix(".json"))
