"""What objects of files hold at their limits of uuids and of open release times, and what it costs.

    files, memory of 1 object      bytes of a uuid and of an open time, each in a process that holds
                                   nothing else of them; then both limits in one object
    files, memory of 10 objects    both limits in each of ten objects of one process
    files, release times           CPU of giving an event its time, beside few and many open ones

Objects are read as after a restart: a position names files whose records are all published, so each
event leaves a uuid and, if it is a change, a time, and no record.  Events are made here; `read` is
the same over files, by the query.  Memory is what the kernel counts (Linux only), above that of the
process with objects that have read nothing.
"""

from __future__ import annotations

import ctypes
import gc
import json
import random
import re
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.producer.event_files import IN_FILE, event_of, write_objects
from tidegate.producer.datastream.event import Event, parse_event
from tidegate.producer.datastream.file_store import LocalStore
from tidegate.producer.datastream.position import Position
from tidegate.producer.datastream.read_methods import read_method_of
from tidegate.producer.datastream_source.event_times import KEPT_MAX, EventTimes
from tidegate.producer.datastream_source.found_file import FoundFile, found_file
from tidegate.producer.datastream_source.limits import US_PER_MINUTE, SourceLimits
from tidegate.producer.datastream_source.object_query import ObjectQuery
from tidegate.producer.datastream_source.object_reading import ObjectReading, ReadFile
from tidegate.producer.driver.clock import SystemClock
from tidegate.program.garbage import collect_rarely
from tidegate.schemas.errors import invariant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = ["FILE_LIMITS", "TEN_OBJECTS", "formula_bytes", "held", "release_times"]

TEN_OBJECTS = "files, memory of 10 objects"
_UUIDS_MAX = SourceLimits().uuids_max
_BEYOND = 300_000
"""Events past the limit of uuids: enough for the set of them to be built again."""
_READ_EVENTS = 100_000
_BYTES_OF_UUID = 90
_BYTES_OF_TIME = 190
"""With an order key of MySQL, 18 bytes."""
_MINUTE = 28_000_000
_FILES_A_MINUTE = 100
_FOLDER = "root/bank_Accounts"
_MYSQL = struct.Struct(">QQB")
_KIB, _MIB = 1 << 10, 1 << 20
_RESET_MOST = "5"
"""What `clear_refs` takes to forget the most that a process has held."""
_TIMEOUT_S = 900


def formula_bytes(*, uuids: int, times: int) -> int:
    """Return the bytes that uuids and open times take, by docs/reference/datastream-files.md."""
    return uuids * _BYTES_OF_UUID + times * _BYTES_OF_TIME


# ---------------------------------------------------------------- memory


class _Memory:
    """What this process holds above what it held at first, in bytes."""

    def __init__(self) -> None:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text(_RESET_MOST)
        self._base = _kernel_bytes("VmRSS")

    def above(self, name: str) -> int:
        return _kernel_bytes(name) - self._base


def _kernel_bytes(name: str) -> int:
    status = Path("/proc/self/status").read_text()
    (kib,) = re.findall(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)
    return int(kib) * _KIB


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
                reading.seen(file)


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


class _NoTasks:
    """Nothing waits here."""

    def signal(self) -> None:
        """Return nothing."""


def _read(events: int) -> dict[str, float]:
    """Read one object's files, all of whose events stay open."""
    minutes = events // IN_FILE + 60
    limits = SourceLimits(open_minutes=minutes, lateness_us=minutes * US_PER_MINUTE)
    with tempfile.TemporaryDirectory() as folder:
        write_objects(Path(folder), events, objects=1)
        (place,) = Path(folder).iterdir()
        reading = ObjectReading(
            resumption={}, start_us=0, first_minute=0, limits=limits, poll_us=3_600_000_000,
            parks=True,
        )  # fmt: skip
        query = ObjectQuery(
            LocalStore(), str(place), reading,
            tasks=_NoTasks(), clock=SystemClock(), heartbeat_ms=1_000,
        )  # fmt: skip
        while not reading.counts["events"]:  # modules and caches are no memory of events
            query.step()
        memory = _Memory()
        while not query.step()[1]:
            pass
    invariant(reading.counts["events"] == events, "not all was read", counts=reading.counts)
    return {"held_bytes": memory.above("VmRSS"), "most_bytes": memory.above("VmHWM")}


# ---------------------------------------------------------------- release times


def release_times(kept_max: int = KEPT_MAX, *, events: int = 5_000) -> dict[str, float]:
    """Return the CPU microseconds of an event beside a hundredth of the limit, and beside it.

    They come in the source's order, anywhere among those that are open, or as a file whose events
    are before all of them; `beyond` is of twice as many in any order as are kept.
    """
    found = {}
    for open_times in (kept_max // 100, kept_max - kept_max // 20):
        some = min(events, open_times // 40)
        for name, numbers in _ORDERS.items():
            spent = 0.0
            rounds = -(-events // some)
            for number in range(rounds):
                times = _filled(open_times, kept_max)
                spent += _seconds(times, numbers(open_times, some, random.Random(number)))
            found[f"{name}_{open_times}_us"] = spent / rounds / some * 1e6
    shuffled = random.Random(1).sample(range(2 * kept_max), kept_max + events)
    times = EventTimes(kept_max)
    _seconds(times, shuffled[:kept_max])
    found["beyond_us"] = _seconds(times, shuffled[kept_max:]) / events * 1e6
    return found


def _after(open_times: int, some: int, _: random.Random) -> list[int]:
    return list(range(2 * open_times, 2 * open_times + some))


def _anywhere(open_times: int, some: int, rng: random.Random) -> list[int]:
    return [2 * one + 1 for one in rng.sample(range(open_times), some)]


def _before(open_times: int, some: int, _: random.Random) -> list[int]:
    return list(range(-some, 0)) if open_times else []


_ORDERS: Mapping[str, Callable[[int, int, random.Random], list[int]]] = {
    "in_order": _after,
    "anywhere": _anywhere,
    "before": _before,
}


def _filled(open_times: int, kept_max: int) -> EventTimes:
    times = EventTimes(kept_max)
    _seconds(times, range(0, 2 * open_times, 2))
    return times


def _seconds(times: EventTimes, numbers: Sequence[int]) -> float:
    """Give events their times; return the CPU time that it took."""
    shift = 1 << 32  # keys have no sign
    events = [(_key(shift + one), _time(shift + one)) for one in numbers]
    began = time.process_time()
    for key, own_us in events:
        times.time_of(key, own_us, earliest_us=1, latest_us=1 << 62)
    return time.process_time() - began


# ---------------------------------------------------------------- processes


def held(kind: str, *numbers: int) -> dict[str, float]:
    """Return `held_bytes` and `most_bytes` of a process of its own.

    `hold` takes numbers of objects, uuids, times and events beyond the limit; `read` of events.
    """
    done = subprocess.run(
        [sys.executable, "-m", __name__, kind, *map(str, numbers)],
        check=False, capture_output=True, text=True, timeout=_TIMEOUT_S,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{kind} {numbers}: {done.stderr[-2_000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _one_object() -> dict[str, float]:
    uuids = held("hold", 1, _UUIDS_MAX, 0, 0)["held_bytes"]
    times = held("hold", 1, 0, KEPT_MAX, 0)["held_bytes"]
    read = held("read", _READ_EVENTS)["held_bytes"]
    return {
        "bytes_a_uuid": uuids / _UUIDS_MAX,
        "bytes_an_open_time": times / KEPT_MAX,
        "read_of_formula": read / formula_bytes(uuids=_READ_EVENTS, times=_READ_EVENTS),
        **_objects(1),
    }


def _objects(objects: int) -> dict[str, float]:
    found = held("hold", objects, _UUIDS_MAX, KEPT_MAX, _BEYOND)
    formula = formula_bytes(uuids=_UUIDS_MAX, times=KEPT_MAX) * objects
    return {
        "held_mib": found["held_bytes"] / _MIB,
        "most_mib": found["most_bytes"] / _MIB,
        "memory_of_formula": found["held_bytes"] / formula,
    }


FILE_LIMITS: dict[str, Callable[[], dict[str, float]]] = {
    "files, memory of 1 object": _one_object,
    TEN_OBJECTS: partial(_objects, 10),
    "files, release times": release_times,
}


if __name__ == "__main__":
    collect_rarely()
    of = {"hold": _hold, "read": _read}[sys.argv[1]]
    print(json.dumps(of(*map(int, sys.argv[2:]))), flush=True)
