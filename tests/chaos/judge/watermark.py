"""A reader of the topics, as section 6.2 of `docs/protocol.md` describes one.

It takes records in any order over the topic partitions, and returns up to which commit time it has
every change.  A change at or below that time is a violation: a reader that sorts and releases would
have released without it.  Pure.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.judge.topics import DataEntry, Entry, ProgressEntry, Published, Topics
from tidegate.local_stack.judge.topics import Where

Logs = Mapping[Where, Sequence[Entry]]
ReadingOrder = Iterator[tuple[Where, int]]
"""From which topic partition how many records are read next."""

_REPEATED = ("revision", "chunks")
_PORTION_MAX = 40
_NS_PER_US = 1_000


@dataclass(slots=True)
class _Heartbeat:
    """A snapshot, whether it was complete, made of changes, or of the once-a-minute kind."""

    revision: int
    includes: int
    vector: dict[Where, int]
    tokens: dict[str, tuple[int, int]] | None
    """Of the open ones number and watermark; None if only the slowest is known."""
    slowest_us: int | None
    """None without an open token."""


@dataclass(slots=True)
class _Slot:
    """What a reader keeps of a slot."""

    number: int
    in_effect: _Heartbeat | None = None
    newest: _Heartbeat | None = None
    waiting: deque[_Heartbeat] = field(default_factory=deque)
    announced: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    """(child, parent) -> offset, and the time up to which nothing is missing."""
    chunks: list[ProgressEntry] = field(default_factory=list)
    """The set that is open."""

    def lowest_us(self) -> int | None:
        """Return the time of the slowest stream partition; None without one."""
        times = [time_us for _, time_us in self.announced.values()]
        if self.in_effect is not None and self.in_effect.slowest_us is not None:
            times.append(self.in_effect.slowest_us)
        return min(times, default=None)


class Reader:
    """One reader; `violations` and `broken` are what it found."""

    def __init__(self, topics: Topics) -> None:
        """Begin before the first record of every topic."""
        self._topics = topics
        self._next: dict[Where, int] = {}
        self._slots: dict[int, _Slot] = {}
        self._count: int | None = None
        self._epoch: str | None = None
        self._changed: set[Where] = set()
        self.watermark_us: int | None = None
        self.violations: list[str] = []
        """Changes that came after the watermark had passed them."""
        self.broken: list[str] = []
        """What a reader has to refuse."""

    def read(self, entry: Entry) -> None:
        """Take the next record of a topic partition."""
        if isinstance(entry, DataEntry):
            # No reader of the stream subscribes the dead letters.
            if entry.topic != self._topics.dead_letters:
                self._read_change(entry)
            return
        self._next[self._topics.progress, entry.slot] = entry.offset + 1
        if self._epoch is None:
            self._epoch = entry.epoch
        elif entry.epoch != self._epoch:
            self._refuse(f"{entry.where}: epoch {entry.epoch}")
            return
        slot = self._slots.setdefault(entry.slot, _Slot(entry.slot))
        match entry.kind:
            case "STREAM_STARTED":
                self._count = int(entry.body["slots"])
            case "PARTITION_ANNOUNCED":
                child = entry.body["child"]
                start_us = child["start_ns"] // _NS_PER_US - 1
                slot.announced[child["token"], entry.body["parent"]] = (entry.offset, start_us)
            case "SLOT_PROGRESS" | "SLOT_CHANGES" | "SLOT_WATERMARK":
                self._read_heartbeat(slot, entry)
            case _:
                pass

    def reach(self, where: Where, next_offset: int) -> None:
        """Take note that all before an offset was read, transaction markers included."""
        self._next[where] = max(next_offset, self._next.get(where, 0))

    def advance(self) -> int | None:
        """Bring the watermark up to date after a portion; None: there is none yet."""
        for slot in self._slots.values():
            while slot.waiting and self._is_reached(slot.waiting[0]):
                slot.in_effect = slot.waiting.popleft()
                includes = slot.in_effect.includes
                slot.announced = {
                    name: (offset, time_us)
                    for name, (offset, time_us) in slot.announced.items()
                    if offset > includes
                }
        if self._count is None:
            return self.watermark_us
        numbers = range(self._count)
        if any(n not in self._slots or self._slots[n].in_effect is None for n in numbers):
            return self.watermark_us
        times = [time_us for n in numbers if (time_us := self._slots[n].lowest_us()) is not None]
        if not times:
            self._refuse("there is no stream partition left")
            return self.watermark_us
        if self.watermark_us is not None and min(times) < self.watermark_us:
            self._refuse(f"the watermark moves from {self.watermark_us} back to {min(times)}")
        self.watermark_us = max(min(times), self.watermark_us or 0)
        return self.watermark_us

    # ------------------------------------------------------------ inside

    def _read_change(self, entry: DataEntry) -> None:
        self._next[entry.topic, entry.topic_partition] = entry.offset + 1
        at_us = entry.place.commit_timestamp_us
        if self.watermark_us is not None and at_us <= self.watermark_us:
            late_us = self.watermark_us - at_us
            self.violations.append(f"{entry.where}: {late_us} µs below the watermark")

    def _read_heartbeat(self, slot: _Slot, entry: ProgressEntry) -> None:
        body = entry.body
        if body["slot"] != slot.number:
            self._refuse(f"{entry.where}: a heartbeat of slot {body['slot']}")
            return
        if body["chunk"] == 0:
            slot.chunks = []
        elif not slot.chunks or not _continues(slot.chunks, entry):
            slot.chunks = []
            return
        slot.chunks.append(entry)
        if len(slot.chunks) == body["chunks"]:
            chunks, slot.chunks = slot.chunks, []
            self._take(slot, chunks)

    def _take(self, slot: _Slot, chunks: Sequence[ProgressEntry]) -> None:
        first, newest = chunks[0], slot.newest
        revision = int(first.body["revision"])
        last = newest.revision if newest is not None else 0
        if first.kind == "SLOT_WATERMARK" and revision <= last:
            if newest is not None and revision == last:
                self._check_repeated(newest, chunks)
            return
        if revision <= last:
            self._refuse(f"{first.where}: revision {revision} after {last}")
            return
        if first.kind == "SLOT_CHANGES" and (newest is None or revision != last + 1):
            return
        vector = dict(newest.vector) if newest is not None and first.kind == "SLOT_CHANGES" else {}
        for where, offset in _vector(chunks).items():
            vector[where] = max(offset, vector.get(where, -1))
        self._check_vector(slot, first, vector)
        slot.newest = _Heartbeat(
            revision=revision,
            includes=int(first.body["includes"]),
            vector=vector,
            tokens=self._tokens(slot, chunks),
            slowest_us=_slowest_us(chunks),
        )
        slot.waiting.append(slot.newest)

    def _tokens(
        self, slot: _Slot, chunks: Sequence[ProgressEntry]
    ) -> dict[str, tuple[int, int]] | None:
        """Return the open tokens; refuse watermarks that fall, and changes that are not true."""
        first = chunks[0]
        before = {} if slot.newest is None else slot.newest.tokens
        if first.kind == "SLOT_WATERMARK" or before is None:
            return None
        if first.kind == "SLOT_PROGRESS":
            tokens = dict(_token(item) for item in _items(chunks, "tokens"))
        else:
            tokens = dict(before)
            by_number = {number: token for token, (number, _) in before.items()}
            moved, removed = _items(chunks, "moved"), _items(chunks, "removed")
            if {*removed, *(one["number"] for one in moved)} - by_number.keys():
                self._refuse(f"{first.where}: names a token that is not open")
                return None
            for number in removed:
                del tokens[by_number[number]]
            tokens |= dict(_token(item) for item in _items(chunks, "added"))
            tokens |= {
                by_number[one["number"]]: (one["number"], one["watermark_us"]) for one in moved
            }
            self._check_slowest(first, tokens)
        fallen = [
            token for token, (_, us) in tokens.items() if token in before and us < before[token][1]
        ]
        if fallen:
            self._refuse(f"{first.where}: the watermarks of {fallen} fall")
        return tokens

    def _check_slowest(self, first: ProgressEntry, tokens: Mapping[str, tuple[int, int]]) -> None:
        us, token = min(((us, token) for token, (_, us) in tokens.items()), default=(0, ""))
        slowest = {"token": token, "watermark_us": us} if tokens else None
        claimed = first.body["open"], first.body["slowest"]
        if claimed != (len(tokens), slowest):
            self._refuse(f"{first.where}: open and slowest are {claimed}, not {slowest}")

    def _check_repeated(self, newest: _Heartbeat, chunks: Sequence[ProgressEntry]) -> None:
        """Compare the once-a-minute kind with the heartbeat of the same revision."""
        first = chunks[0]
        if (first.body["includes"], _vector(chunks)) != (newest.includes, newest.vector):
            self._refuse(f"{first.where}: minute {first.body['minute']} has another vector")
        if newest.tokens is not None:
            self._check_slowest(first, newest.tokens)

    def _check_vector(self, slot: _Slot, first: ProgressEntry, vector: Mapping[Where, int]) -> None:
        """A vector only grows (7.5); that is why those that wait are tried oldest first."""
        where = first.where
        for place, offset in (slot.newest.vector if slot.newest is not None else {}).items():
            if vector.get(place, -1) < offset:
                self._refuse(f"{where}: the vector goes back at {place}, from {offset}")
        for topic, _ in vector:
            is_ours = topic.startswith(f"{self._topics.prefix}.")
            if is_ours and not self._topics.is_data(topic):
                self._refuse(f"{where}: the vector names {topic}")

    def _is_reached(self, heartbeat: _Heartbeat) -> bool:
        return all(
            self._next.get(where, 0) > offset
            for where, offset in heartbeat.vector.items()
            if where[0] == self._topics.progress or self._topics.is_data(where[0])
        )

    def _refuse(self, text: str) -> None:
        self.broken.append(text)


def _continues(chunks: Sequence[ProgressEntry], entry: ProgressEntry) -> bool:
    last = chunks[-1]
    return (
        entry.kind == last.kind
        and entry.body["chunk"] == last.body["chunk"] + 1
        and all(entry.body[name] == last.body[name] for name in _REPEATED)
    )


def _items(chunks: Sequence[ProgressEntry], name: str) -> list[Any]:
    return [item for chunk in chunks for item in chunk.body[name]]


def _vector(chunks: Sequence[ProgressEntry]) -> dict[Where, int]:
    return {
        (item["topic"], item["topic_partition"]): item["offset"]
        for item in _items(chunks, "vector")
    }


def _token(snapshot: Mapping[str, Any]) -> tuple[str, tuple[int, int]]:
    # Version 1 has no numbers.
    return snapshot["token"], (snapshot.get("number", -1), snapshot["watermark_us"])


def _slowest_us(chunks: Sequence[ProgressEntry]) -> int | None:
    if chunks[0].kind != "SLOT_PROGRESS":
        slowest = chunks[0].body["slowest"]
        return None if slowest is None else int(slowest["watermark_us"])
    return min((int(token["watermark_us"]) for token in _items(chunks, "tokens")), default=None)


# ---------------------------------------------------------------- reading again, in other orders


def late_changes(published: Published, *, seed: int, last_us: int) -> dict[str, list[str]]:
    """Read everything again in several orders; return what came late, and what is missing at last.

    `last_us` is the last commit: every reader's watermark has to pass it.
    """
    found: dict[str, list[str]] = {
        "watermark_violations": [], "refused_by_readers": [], "not_caught_up": [],
    }  # fmt: skip
    topics, logs = published.topics, published.logs
    for name, order in reading_orders(topics, logs, seed=seed):
        reader = replay(topics, logs, published.ends, order)
        found["watermark_violations"] += [f"read {name}: {text}" for text in reader.violations]
        found["refused_by_readers"] += [f"read {name}: {text}" for text in reader.broken]
        reached_us = reader.watermark_us or 0
        if reached_us < last_us:
            text = f"read {name}: the last watermark is {last_us - reached_us} µs behind"
            found["not_caught_up"].append(text)
    return found


def replay(topics: Topics, logs: Logs, ends: Mapping[Where, int], order: ReadingOrder) -> Reader:
    """Return a reader that has read everything, in an order."""
    reader, done = Reader(topics), dict.fromkeys(logs, 0)
    for where, count in order:
        log, begin = logs[where], done[where]
        for entry in log[begin : begin + count]:
            reader.read(entry)
        done[where] = begin + count
        # Markers up to the next record may have been read as well: the most that a reader knows.
        rest = log[begin + count : begin + count + 1]
        reader.reach(where, rest[0].offset if rest else ends[where])
        reader.advance()
    return reader


def reading_orders(topics: Topics, logs: Logs, *, seed: int) -> Iterator[tuple[str, ReadingOrder]]:
    """Yield the orders in which the topics are read again, each with a name."""
    chance = random.Random(f"{seed}/reading")
    slots = [where for where in logs if where[0] == topics.progress]
    data = [where for where in logs if where[0] != topics.progress]
    yield "as written", _as_written(logs)
    yield "progress first", _one_by_one(logs, [*_shuffled(slots, chance), *_shuffled(data, chance)])
    yield "data first", _one_by_one(logs, [*_shuffled(data, chance), *_shuffled(slots, chance)])
    for number in range(3):
        yield f"at random {number}", _at_random(logs, list(logs), chance)
    for number in range(2):
        last = chance.choice(list(logs))
        others = [where for where in logs if where != last]
        order = _chain(_at_random(logs, others, chance), _one_by_one(logs, [last]))
        yield f"{last[0]}/{last[1]} last, {number}", order


def _as_written(logs: Logs) -> ReadingOrder:
    entries = [(entry.written_ms, where) for where, log in logs.items() for entry in log]
    # A log's own order stays: its times may go back, the number of its records counts.
    for _, where in sorted(entries, key=lambda one: one[0]):
        yield where, 1


def _one_by_one(logs: Logs, places: Sequence[Where]) -> ReadingOrder:
    for where in places:
        for begin in range(0, max(len(logs[where]), 1), _PORTION_MAX):
            yield where, min(_PORTION_MAX, len(logs[where]) - begin)


def _at_random(logs: Logs, places: Sequence[Where], chance: random.Random) -> ReadingOrder:
    left = {where: len(logs[where]) for where in places}
    while left:
        where = chance.choice(list(left))
        count = min(chance.randint(1, _PORTION_MAX), left[where])
        left[where] -= count
        if left[where] <= 0:
            del left[where]
        yield where, count


def _chain(*orders: ReadingOrder) -> ReadingOrder:
    for order in orders:
        yield from order


def _shuffled(places: Sequence[Where], chance: random.Random) -> list[Where]:
    return chance.sample(list(places), len(places))
