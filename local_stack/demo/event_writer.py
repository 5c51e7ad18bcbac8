"""Makes the bank's transfers and writes their events as files, in a thread, as Datastream does.

A file is complete when it appears: it is written to another folder and moved to the location.  The
last transfer waits for `finish`, and for every other event to be in a file.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Generic, TypeVar

from tidegate.local_stack.demo.event_forms import (
    CDC,
    Named,
    avro_bytes,
    backfill_event,
    change_event,
    event_schema,
    named,
)
from tidegate.local_stack.demo.source_bank import DATABASE, FIELDS, KEY, SourceBank
from tidegate.local_stack.errors import PartFailedError
from tidegate.local_stack.judge.events import SourceEvent

_Event = TypeVar("_Event")
_JITTER_S = 0.8
_COPY_CHANCE, _COPY_WITHIN_S = 0.05, 8.0
_FILE_HELD_CHANCE, _SURELY_HELD_EVENTS = 0.12, 5
_FILE_TWICE_CHANCE = 0.08


@dataclass(frozen=True, slots=True)
class DeliveredFile(Generic[_Event]):
    """A file to write now, in the folder of a minute since 1970."""

    folder: str
    minute: int
    events: Sequence[_Event]


@dataclass(slots=True)
class Delivery(Generic[_Event]):
    """The events that were read in the source and are in no file yet, of all folders."""

    seed: int
    hold_s: float
    """How long a file that is late is held back, at least."""
    _chance: random.Random = field(init=False)
    _waiting: defaultdict[str, list[tuple[float, _Event]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    _held: list[tuple[float, DeliveredFile[_Event]]] = field(default_factory=list)
    _held_since: set[str] | None = None
    """The folders with a file that was held back since `hold_next`."""

    def __post_init__(self) -> None:
        """Seed the chance."""
        self._chance = random.Random(f"{self.seed}/delivery")  # noqa: S311 - sample data

    @property
    def is_empty(self) -> bool:
        """Whether every event is in a file."""
        return not self._held and not any(self._waiting.values())

    def add(self, folder: str, event: _Event, *, now_s: float) -> None:
        """Take an event that was read now; it is delivered at least once."""
        chance = self._chance
        waiting = self._waiting[folder]
        waiting.append((now_s + chance.uniform(0, _JITTER_S), event))
        if chance.random() < _COPY_CHANCE:
            waiting.append((now_s + chance.uniform(0, _COPY_WITHIN_S), event))

    def hold_next(self) -> None:
        """Hold the next file of each folder back, if it has more than a few events."""
        self._held_since = set()

    def files(self, *, now_s: float) -> list[DeliveredFile[_Event]]:
        """Return the files that are written now: one for each folder, and late files.

        A late file is in the folder of the minute in which it would have been written.
        """
        files = [file for due_s, file in self._held if due_s <= now_s]
        self._held = [pair for pair in self._held if pair[0] > now_s]
        for folder, waiting in self._waiting.items():
            due = sorted(
                (delivery for delivery in waiting if delivery[0] <= now_s),
                key=lambda delivery: delivery[0],
            )
            if not due:
                continue
            self._waiting[folder] = [delivery for delivery in waiting if delivery[0] > now_s]
            file = DeliveredFile(folder, int(now_s // 60), [event for _, event in due])
            surely = (
                self._held_since is not None
                and folder not in self._held_since
                and len(file.events) >= _SURELY_HELD_EVENTS
            )
            if self._chance.random() < _FILE_HELD_CHANCE or surely:
                if self._held_since is not None:
                    self._held_since.add(folder)
                until_s = now_s + self._chance.uniform(self.hold_s, 1.5 * self.hold_s)
                self._held.append((until_s, file))
                continue
            files.append(file)
            if self._chance.random() < _FILE_TWICE_CHANCE:
                again = self._chance.sample(file.events, len(file.events))
                until_s = now_s + self._chance.uniform(0, _COPY_WITHIN_S)
                self._held.append((until_s, DeliveredFile(folder, file.minute, again)))
        return files


_STEP_S = 0.1
_FILES_EVERY_S = 1.0
_STOP_S = 10.0
_BURST_MAX = 500
"""Transfers of one step where nothing limits their rate."""
_UPDATE = {"mysql": "UPDATE-INSERT", "oracle": "UPDATE-INSERT"}
_CLOCK_GOES_BACK = ("mysql", "oracle")
"""Sources whose order has no time in it: a change has the time of its statement."""
_BACK_CHANCE, _BACK_MS = 0.05, 2_000
_PER_LOG = 500
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class FilesWriter:
    """The source and Datastream in one; `step` does the due work, `start` does so in a thread."""

    location: Path
    source: str
    bank: SourceBank
    transfers: int
    rate_max: float
    """Transfers per second; 0: no limit."""
    pause_at: int
    """Before this transfer it waits for `resume`."""
    seed: int
    hold_s: float
    in_time_s: float
    """An event is in time if a file has it within this many seconds of the source's time."""
    done: int = 0
    events: dict[str, SourceEvent] = field(default_factory=dict)
    """Every event in a file, by uuid."""
    copies: int = 0
    """Events in files beyond the first of each."""
    files: int = 0
    last_source_us: int = 0
    """The source's time of the last change."""
    _limit: int = field(init=False)
    _is_finishing: bool = False
    _number: int = 0
    _at_ms: int = 0
    _rate_from: tuple[float, int] | None = None
    _files_at_s: float = 0.0
    _unread: list[tuple[str, Any]] = field(init=False)
    """Rows that the backfill has not read yet."""
    _backfill_rows: int = field(init=False)
    _delivery: Delivery[tuple[dict[str, Any], SourceEvent]] = field(init=False)
    _tables: dict[str, Named] = field(init=False)
    _chance: random.Random = field(init=False)
    _thread: threading.Thread | None = None
    _stopped: threading.Event = field(default_factory=threading.Event)
    _failure: BaseException | None = None

    def __post_init__(self) -> None:
        """Prepare; nothing is written yet."""
        self._limit = min(self.pause_at, self.transfers - 1)
        self._unread = [(table, key) for table, rows in self.bank.tables.items() for key in rows]
        self._backfill_rows = len(self._unread)
        self._delivery = Delivery(self.seed, self.hold_s)
        self._tables = {
            table: named(self.source, database=DATABASE, table=table) for table in self.bank.tables
        }
        self._chance = random.Random(f"{self.seed}/writer")  # noqa: S311 - sample data
        self._chance.shuffle(self._unread)

    @property
    def final_tables(self) -> dict[str, dict[Any, dict[str, Any]]]:
        """The source's rows, by the output's table and by key."""
        return {
            self._tables[table].topic_name: dict(rows) for table, rows in self.bank.tables.items()
        }

    def topic_name(self, table: str) -> str:
        """Return a table's name in the output."""
        return self._tables[table].topic_name

    @property
    def has_written_all_but_last(self) -> bool:
        """Whether only the last transfer is left; raises PartFailedError if the thread failed."""
        self._check()
        return self.done >= self.transfers - 1 and not self._unread and self._delivery.is_empty

    @property
    def has_finished(self) -> bool:
        """Whether everything is in files; raises PartFailedError if the thread failed."""
        self._check()
        return self.done >= self.transfers and self._delivery.is_empty

    @property
    def event_counts(self) -> Counter[str]:
        """How many `changes`, `rows` of the backfill and `late` events are in files."""
        counts: Counter[str] = Counter()
        for event in self.events.values():
            counts["rows" if event.number is None else "changes"] += 1
            counts["late"] += not event.is_in_time and event.number is not None
        return counts

    def start(self) -> None:
        """Start the thread."""
        self.location.mkdir(parents=True)
        self._thread = threading.Thread(target=self._run, name="files", daemon=True)
        self._thread.start()

    def resume(self) -> None:
        """End the pause; with every seed the first files after it are late."""
        self._delivery.hold_next()
        self._limit = self.transfers - 1

    def finish(self) -> None:
        """Let the last transfer follow when all other events are in files."""
        self._is_finishing = True

    def stop(self) -> None:
        """Stop the thread, finished or not."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(_STOP_S)

    def _check(self) -> None:
        if self._failure is not None:
            raise PartFailedError(
                "the writer of files failed", cause=repr(self._failure)
            ) from self._failure

    def _run(self) -> None:
        try:
            while not self._stopped.wait(_STEP_S):
                self.step(now_s=time.time())
        except BaseException as error:  # noqa: BLE001 - `_check` raises it in the demo's thread
            self._failure = error

    def step(self, *, now_s: float) -> None:
        """Do the due work: transfers, a part of the backfill, and once a second files."""
        for _ in range(self._due(now_s)):
            self._transfer(now_s)
        self._backfill(now_s)
        if now_s >= self._files_at_s + _FILES_EVERY_S:
            self._files_at_s = now_s
            for file in self._delivery.files(now_s=now_s):
                self._write(file)
        is_last = self.done == self.transfers - 1 and self.has_written_all_but_last
        if self._is_finishing and is_last:
            self._transfer(now_s, at_once=True)

    def _due(self, now_s: float) -> int:
        """Return how many transfers to make now."""
        left = self._limit - self.done
        if left <= 0:
            self._rate_from = None
            return 0
        if not self.rate_max:
            return min(left, _BURST_MAX)
        began_s, before = self._rate_from = self._rate_from or (now_s, self.done)
        return max(0, min(left, before + int((now_s - began_s) * self.rate_max) - self.done))

    def _transfer(self, now_s: float, *, at_once: bool = False) -> None:
        changes = self.bank.transfer(self.done, at_us=int(now_s * 1_000) * 1_000)
        together: dict[str, list[tuple[dict[str, Any], SourceEvent]]] = {}
        for change in changes:
            table = self._tables[change.table]
            at_ms = self._next_ms(now_s, is_last=at_once)
            kind = _UPDATE.get(self.source, "UPDATE") if change.kind == "UPDATE" else change.kind
            event = change_event(
                table, self._number, at_ms=at_ms, read_ms=int(now_s * 1_000), uuid=self._uuid(),
                change_type=kind, payload=change.row, key=KEY, per_log=_PER_LOG,
            )  # fmt: skip
            made = self._noted(
                event, table.topic_name, change.row, number=self._number,
                is_deleted=change.kind == "DELETE",
            )  # fmt: skip
            self._number += 1
            if at_once:
                together.setdefault(change.table, []).append((event, made))
            else:
                self._delivery.add(change.table, (event, made), now_s=now_s)
        for name, events in together.items():
            self._write(DeliveredFile(name, int(now_s // 60), events))
        self.done += 1

    def _next_ms(self, now_s: float, *, is_last: bool) -> int:
        """Return the source's time of the next change; it may go back if its order ignores time."""
        now_ms = int(now_s * 1_000)
        if self.source in _CLOCK_GOES_BACK:
            back = not is_last and self._chance.random() < _BACK_CHANCE
            at_ms = now_ms - _BACK_MS if back else now_ms
        else:
            # Salesforce orders by time alone.
            at_ms = max(now_ms, self._at_ms + (self.source == "salesforce"))
        self._at_ms = at_ms
        self.last_source_us = at_ms * 1_000
        return at_ms

    def _backfill(self, now_s: float) -> None:
        """Read rows at their current state: all of them during the first half of the transfers."""
        share = min(1.0, 2 * self.done / self.transfers)
        unread_then = self._backfill_rows - int(share * self._backfill_rows)
        while len(self._unread) > unread_then:
            name, key = self._unread.pop()
            row = self.bank.tables[name].get(key)
            if row is None:
                continue  # deleted before it was read
            table, read_ms = self._tables[name], int(now_s * 1_000)
            event = backfill_event(
                table, len(self._unread), read_ms=read_ms, uuid=self._uuid(), payload=row, key=KEY
            )
            made = self._noted(event, table.topic_name, row, number=None, is_deleted=False)
            self._delivery.add(name, (event, made), now_s=now_s)

    def _uuid(self) -> str:
        return str(uuid.UUID(int=self._chance.getrandbits(128), version=4))

    @staticmethod
    def _noted(
        event: Mapping[str, Any],
        table: str,
        row: Mapping[str, Any],
        *,
        number: int | None,
        is_deleted: bool,
    ) -> SourceEvent:
        return SourceEvent(
            table=table, uuid=str(event["uuid"]), key=row[KEY], number=number,
            is_deleted=is_deleted, row=row, source_us=event["source_timestamp"] * 1_000,
        )  # fmt: skip

    def _write(self, file: DeliveredFile[tuple[dict[str, Any], SourceEvent]]) -> None:
        table = self._tables[file.folder]
        minute = (_EPOCH + timedelta(minutes=file.minute)).strftime("%Y/%m/%d/%H/%M")
        folder = self.location / table.object_name / minute
        folder.mkdir(parents=True, exist_ok=True)
        self.files += 1
        name = f"{self.files:06d}_{CDC[self.source]}_0.avro"
        schema = event_schema(self.source, table.object_name, FIELDS[file.folder])
        unfinished = self.location.with_name(name)
        unfinished.write_bytes(
            avro_bytes(schema, [event for event, _ in file.events], codec="deflate")
        )
        unfinished.rename(folder / name)
        written_us = time.time_ns() // 1_000
        for _, event in file.events:
            if event.uuid in self.events:
                self.copies += 1
                continue
            self.events[event.uuid] = event.written(
                written_us,
                is_in_time=written_us - event.source_us < self.in_time_s * 1_000_000,
            )
