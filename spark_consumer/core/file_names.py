"""Names of the files below a checkpoint's `gate` folder, and the numbers of their formats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegate.spark_consumer.errors import NewerCheckpoint

QUERY_FILE = "query.json"
START_FILE = "start.json"
ADOPTED_FILE = "adopted.json"
PLANS = "plans"
STATES = "states"
SEGMENTS = "segments"
FRONTIERS = "frontiers"
LISTS = "lists"
LISTED_FOLDERS = (".", STATES, PLANS, FRONTIERS, "schemas", "leases", "writers")
"""The folders in which killed writes leave files; the other folders are deleted as a whole."""


def plan_file(batch: int) -> str:
    """Return the file of a batch's plan."""
    return f"{PLANS}/{batch}.json"


def state_file(batch: int) -> str:
    """Return the file of the state after a batch."""
    return f"{STATES}/{batch}.json"


def frontier_name(batch: int, *, writer: int) -> str:
    """Return the name under which a run stores the frontier of a batch: no other run has it."""
    return f"{batch:012d}/{writer}"


def frontier_file(name: str) -> str:
    """Return the file of a frontier, by the name in its plan."""
    return f"{FRONTIERS}/{name}.json"


def frontier_part(name: str, number: int) -> str:
    """Return a file that the index of a frontier names."""
    return f"{FRONTIERS}/{name}-{number:03d}.json"


def frontiers_of_older_programs(batch: int) -> tuple[str, ...]:
    """Return the frontiers that a batch of an older program was the last to need."""
    return (frontier_file(f"{batch - 1:012d}"),) if batch >= 1 else ()


def frontier_folder(file: str) -> str:
    """Return the folder of a frontier's file, which also has the files of other runs for its batch.

    Older programs wrote one file for each batch: then it is the file.
    """
    folder = folder_of(file)
    return file if folder == FRONTIERS else folder


def list_part(batch: int, number: int, *, writer: int) -> str:
    """Return a file of segments that a run stores for the state of a batch: no other run has it."""
    return f"{LISTS}/{batch:012d}/{writer}-{number:03d}.json"


def folder_of(file: str) -> str:
    """Return the folder of a file."""
    folder, _, _ = file.rpartition("/")
    return folder


def segment_name(planned: str, *, writer: int) -> str:
    """Return the name under which a run writes a segment: no other run writes to it."""
    return f"{planned}/{writer}"


def segment_file(name: str) -> str:
    """Return the folder of a segment, which also has the files of other runs for it."""
    planned, _, _ = name.partition("/")
    return f"{SEGMENTS}/{planned}"


def schema_file(schema_id: int) -> str:
    """Return the file of a schema of the registry."""
    return f"schemas/{schema_id}.json"


def number_in(file_name: str) -> int | None:
    """Return the number of a plan's or state's file name; None for any other file's."""
    number, _, ending = file_name.partition(".")
    return int(number) if ending == "json" and number.isdecimal() else None


def require_known(what: str, data: Mapping[str, Any], *, newest: int) -> int:
    """Return the format number of stored data, 1 if it has none.

    Raises NewerCheckpoint for a number above `newest`.
    """
    number: int = data.get("format", 1)
    if number > newest:
        code = data.get("code") or "that wrote it"
        raise NewerCheckpoint(
            f"a newer version of Tidegate stored this {what}",
            hint=f"Install Tidegate {code} or newer; this version cannot read its format",
            batch=data.get("batch"),
            found=number,
            known=newest,
        )
    return number
