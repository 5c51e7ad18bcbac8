"""What an object of files holds at its limits of uuids and of open release times.

    files, memory of 1 object      bytes of a uuid and of an open time, each in a process that holds
                                   nothing else of them; then both limits in one object

Objects are read as after a restart: a position names files whose records are all published, so each
event leaves a uuid and, if it is a change, a time, and no record.  Memory is above that of the
process with objects that have read nothing; docs/reference/datastream-files.md has the formula.
"""

from __future__ import annotations

import ctypes
import gc
import json
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.measuring import MIB, figures_of_process, memory_bytes
from benchmarks.producer.event_files import IN_FILE, event_of
from tidegate.producer.datastream.errors import Position
from tidegate.producer.datastream.event import Event, parse_event
from tidegate.producer.datastream.event_memory import KEPT_MAX
from tidegate.producer.datastream.file_ledger import (
    US_PER_MINUTE,
    FoundFile,
    SourceLimits,
    found_file,
)
from tidegate.producer.datastream.object_reading import ObjectReading, ReadFile
from tidegate.producer.datastream.read_methods import read_method_of
from tidegate.program.memory import collect_rarely
from tidegate.schemas.errors import invariant

_UUIDS_MAX = SourceLimits().uuids_max
_BEYOND = 300_000
"""Events past the limit of uuids: enough for the set of them to be built again."""
_BYTES_OF_UUID = 90
_BYTES_OF_TIME = 190
"""With an order key of MySQL, 18 bytes."""
_MINUTE = 28_000_000
_FILES_A_MINUTE = 100
_FOLDER = "root/bank_Accounts"
_MYSQL = struct.Struct(">QQB")
_RESET_MOST = "5"
"""What `clear_refs` takes to forget the most that a process has held."""
_TIMEOUT_S = 900


# ---------------------------------------------------------------- memory


class _Memory:
    """What this process holds above what it held at first, in bytes."""

    def __init__(self) -> None:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text(_RESET_MOST)
        self._base = memory_bytes("VmRSS")

    def above(self, name: str) -> int:
        return memory_bytes(name) - self._base


def _hold(objects: int, uuids: int, times: int, beyond: int) -> dict[str, float]:
    """Read so many events of each object, the last ones changes; then rows beyond the limit."""
    files = [_file(number) for number in range(-(-(max(uuids, times) + beyond) // IN_FILE))]
    limits = SourceLimits(uuids_max=max(uuids, 1))
    readings = [_reading(files, limits) for _ in range(objects)]
    template = _template()
    memory = _Memory()
    rows = max(uuids, times) - times
    _take(readings, files, _rows(template, range(rows)))
    for reading in readings:  # order keys are kept: each object has its own
        _take([reading], files[rows // IN_FILE :], _changes(template, range(rows, rows + times)))
    found = {"held_bytes": memory.above("VmRSS")}
    _take(readings, files[uuids // IN_FILE :], _rows(template, range(uuids, uuids + beyond)))
    if uuids:
        forgotten = {one.forgotten_uuids > 0 for one in readings}
        invariant(forgotten == {beyond > 0}, "the limit of uuids was reached in part")
    return {**found, "most_bytes": memory.above("VmHWM")}


def _file(number: int) -> FoundFile:
    at = datetime.fromtimestamp((_MINUTE + number // _FILES_A_MINUTE) * 60, UTC)
    path = f"{_FOLDER}/{at:%Y/%m/%d/%H/%M}/{number:06d}.avro"
    return found_file(path, within=_FOLDER, modified_us=int(at.timestamp()) * 1_000_000)


def _reading(files: Sequence[FoundFile], limits: SourceLimits) -> ObjectReading:
    """Return an object of which all records of the files are published and none is read again."""
    reading = ObjectReading(
        resumption={one.name: f"{IN_FILE}/{turn}" for turn, one in enumerate(files, 1)},
        start_us=0,
        first_minute=_MINUTE,
        limits=limits,
        poll_us=3_600_000_000,
        parks=True,
    )
    reading.listed(files, began_us=files[-1].end_us, from_minute=_MINUTE)
    return reading


def _take(
    readings: Sequence[ObjectReading], files: Sequence[FoundFile], events: Iterator[Event]
) -> None:
    """Have each reading take the events, which are those of the files one after the other."""
    for file, event in zip((one for one in files for _ in range(IN_FILE)), events, strict=False):
        for reading in readings:
            reading.event(file, event, None)
            if event.position.record == IN_FILE:
                due = reading.due(0)
                invariant(due == ReadFile(file, IN_FILE), "another file is due", due=due)
                reading.note_reread(file)


def _template() -> Event:
    at = datetime.fromtimestamp(_MINUTE * 60, UTC)
    return parse_event(event_of("Accounts", 0, at), Position("", 1))


def _rows(template: Event, numbers: range) -> Iterator[Event]:
    """Yield rows of a backfill, which have uuids and no times of their own."""
    method = read_method_of("mysql-backfill-fulldump")
    for number in numbers:
        yield replace(
            template, uuid=_uuid(number), position=Position("", number % IN_FILE + 1),
            read_method=method,
        )  # fmt: skip


def _changes(template: Event, numbers: range) -> Iterator[Event]:
    for number in numbers:
        yield replace(
            template, uuid=_uuid(number), position=Position("", number % IN_FILE + 1),
            order_key=_key(number), source_timestamp_us=_time(number),
        )  # fmt: skip


def _uuid(number: int) -> str:
    return f"3c0ffaeb-b16e-4c8c-91d4-{number:012x}"


def _key(number: int) -> bytes:
    return b"\1" + _MYSQL.pack(1, number, 1)


def _time(number: int) -> int:
    return _MINUTE * US_PER_MINUTE + number * 100


# ---------------------------------------------------------------- processes


def held(objects: int, uuids: int, times: int, beyond: int) -> dict[str, float]:
    """Return `held_bytes` and `most_bytes` of a process of its own."""
    numbers = (objects, uuids, times, beyond)
    return figures_of_process(
        __name__, *numbers, what=f"files, memory, {numbers}", timeout_s=_TIMEOUT_S
    )


def _one_object() -> dict[str, float]:
    uuids = held(1, _UUIDS_MAX, 0, 0)["held_bytes"]
    times = held(1, 0, KEPT_MAX, 0)["held_bytes"]
    found = held(1, _UUIDS_MAX, KEPT_MAX, _BEYOND)
    formula = _UUIDS_MAX * _BYTES_OF_UUID + KEPT_MAX * _BYTES_OF_TIME
    return {
        "bytes_a_uuid": uuids / _UUIDS_MAX,
        "bytes_an_open_time": times / KEPT_MAX,
        "held_mib": found["held_bytes"] / MIB,
        "most_mib": found["most_bytes"] / MIB,
        "memory_of_formula": found["held_bytes"] / formula,
    }


FILE_LIMITS: dict[str, Callable[[], dict[str, float]]] = {"files, memory of 1 object": _one_object}


if __name__ == "__main__":
    collect_rarely()
    print(json.dumps(_hold(*map(int, sys.argv[1:]))), flush=True)
