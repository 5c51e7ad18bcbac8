"""P4: from Kafka alone, the exact watermark: the time up to which everything is in the log."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from types import UnionType

from tests.simulation.history import History, Published, Violation, whole_bodies
from tidegate.schemas.checksums import CHECKSUM_MODULUS, CHECKSUMS, origin_of
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.order_key import OrderKey
from tidegate.schemas.progress import (
    ChecksumKind,
    PartitionAnnounced,
    PartitionFinished,
    SlotChanges,
    SlotProgress,
    SlotWatermark,
    SlowestToken,
    StreamStarted,
)
from tidegate.schemas.progress_chain import SlotChain


def watermark(history: History) -> Iterator[Violation]:
    """A watermark is never early and never goes back.

    Early would be: a change at or below it that the reader, at the offsets of that batch, had not
    got.  What was parked and put back comes late, and is said to do so.
    """
    redriven = history.redriven
    records: list[tuple[int, Published]] = sorted(
        (
            (OrderKey.decode(record.order_key).commit_timestamp_us, record)
            for record in history.published
            if not record.is_copy and record.order_key not in redriven
        ),
        key=lambda pair: pair[0],
    )
    times = [at_us for at_us, _ in records]
    published = {record.order_key for _, record in records}
    unpublished = sorted(
        (change.commit_timestamp_us, change.order_key)
        for change in history.watched
        if change.order_key not in published
    )
    before_us, checked = -1, 0
    for claim in history.claims:
        if claim.watermark_us < before_us:
            text = f"batch {claim.batch}: from {before_us} back to {claim.watermark_us}"
            yield Violation(text)
        if history.end_us is not None and claim.watermark_us > history.end_us:
            yield Violation(f"batch {claim.batch}: past the end of the stream, which is not read")
        # What an earlier claim has covered was read by then, and reading never goes back.
        covered = bisect_right(times, claim.watermark_us)
        for at_us, record in records[checked:covered]:
            if claim.read.get(record.topic, {}).get(record.topic_partition, 0) <= record.offset:
                text = f"batch {claim.batch}: {claim.watermark_us - at_us} µs early"
                yield Violation(text, record.order_key)
        for at_us, order_key in unpublished:
            if before_us < at_us <= claim.watermark_us:
                yield Violation(f"batch {claim.batch}: passed what is not in Kafka", order_key)
        before_us, checked = max(before_us, claim.watermark_us), max(covered, checked)


_Vector = dict[tuple[str, int], int]


def views(history: History) -> Iterator[Violation]:
    """What a reader believes of a slot is what the slot said: its vector at a revision, in full."""
    said = _said(history, SlotProgress | SlotChanges | SlotWatermark)
    sums: dict[tuple[int, int], _Vector] = {}
    newest: dict[int, _Vector] = {}
    for (slot, revision), entries in sorted(said.items()):
        sums[slot, revision] = newest[slot] = {**newest.get(slot, {}), **entries}
    for view in history.views:
        written = sums.get((view.slot, view.revision))
        if written is None:
            yield Violation(f"slot {view.slot}: a reader knows revision {view.revision}")
        elif dict(view.vector) != written:
            lacking = sorted(written.items() - dict(view.vector).items())
            yield Violation(
                f"slot {view.slot}: a reader took revision {view.revision} without {lacking}"
            )


def vectors(history: History) -> Iterator[Violation]:
    """A slot's vector only grows, over all its owners: nothing that was written is left out of it.

    Compare each whole vector, over all its chunks, with what the slot has said before it.
    """
    said = _said(history, SlotProgress | SlotChanges | SlotWatermark)
    whole = _said(history, SlotProgress | SlotWatermark)
    reached: dict[int, _Vector] = {}
    for (slot, revision), entries in sorted(said.items()):
        before = reached.setdefault(slot, {})
        found = whole.get((slot, revision), {**before, **entries})
        if any(found.get(place, -1) < offset for place, offset in before.items()):
            yield Violation(f"slot {slot}: the vector of revision {revision} lacks what was in it")
        before.update(entries)


def _said(history: History, kinds: UnionType) -> dict[tuple[int, int], _Vector]:
    said: dict[tuple[int, int], _Vector] = {}
    for body in history.bodies:
        if isinstance(body, kinds):
            said.setdefault((body.slot, body.revision), {}).update(_vector(body))
    return said


def _vector(body: SlotProgress | SlotChanges | SlotWatermark) -> _Vector:
    return {(one.topic, one.topic_partition): one.offset for one in body.vector}


def chains(history: History) -> Iterator[Violation]:
    """Changes of a slot continue a chain, and what they say of all its tokens is true."""
    known: dict[int, SlotChain] = {}
    for entry, body in whole_bodies(history):
        chain = known.get(entry.slot)
        if isinstance(body, SlotProgress):
            known[entry.slot] = SlotChain(body, offset=entry.offset)
            if chain is not None:
                yield from _fallen(chain.watermarks(), known[entry.slot], entry.slot)
        elif isinstance(body, SlotChanges):
            if chain is None:
                yield Violation(f"slot {entry.slot}: changes before the first snapshot")
                return
            before = chain.watermarks()
            try:
                chain.add(body)
            except SchemaError as error:
                yield Violation(f"slot {entry.slot}, revision {body.revision}: {error}")
                return
            yield from _compare(chain, body, entry.slot)
            yield from _fallen(before, chain, entry.slot)
        elif isinstance(body, SlotWatermark) and chain is not None:
            yield from _compare(chain, body, entry.slot)
            if _vector(body) != chain.vector:
                yield Violation(f"slot {entry.slot}: minute {body.minute} has another vector")


def _compare(chain: SlotChain, body: SlotChanges | SlotWatermark, slot: int) -> Iterator[Violation]:
    marks = [(us, token) for token, us in chain.watermarks().items()]
    watermark_us, token = min(marks, default=(0, ""))
    slowest = SlowestToken(token, watermark_us) if marks else None
    claimed = (body.revision, body.includes, body.open, body.slowest)
    if claimed != (chain.revision, chain.includes, len(marks), slowest):
        yield Violation(
            f"slot {slot}: revision {body.revision} has {claimed}, slowest is {slowest}"
        )


def _fallen(before: dict[str, int], now: SlotChain, slot: int) -> Iterator[Violation]:
    fallen = [token for token, us in now.watermarks().items() if us < before.get(token, us)]
    if fallen:
        yield Violation(f"slot {slot}: watermarks of {fallen} fall")


def completeness(history: History) -> Iterator[Violation]:
    """A completion marker's totals and checksum are those of the changes that were committed."""
    order_keys: dict[tuple[str, str], list[bytes]] = defaultdict(list)
    for change in history.watched:
        if change.token is not None:
            order_keys[change.token, change.topic].append(change.order_key)
    gaps = history.gaps
    for body in history.bodies:
        if not isinstance(body, PartitionFinished) or body.chunk:
            continue
        found = {total.topic: (total.mods, total.checksum) for total in body.totals}
        checksum_of = CHECKSUMS[body.checksums]
        wanted = {
            topic: (len(keys), sum(map(checksum_of, keys)) % CHECKSUM_MODULUS)
            for (token, topic), keys in order_keys.items()
            if token == body.token
        }
        counted = [
            change
            for change in history.filtered
            if change.token == body.token and history.covers(change.commit_timestamp_us)
        ]
        in_gaps = sum(
            gap.token == body.token and gap.covers(change.commit_timestamp_us)
            for gap in gaps
            for change in counted
        )
        if not len(counted) - in_gaps <= body.filtered <= len(counted):
            text = f"its marker counts {body.filtered} left out, there were {len(counted)}"
            yield Violation(text, body.token)
        if found != wanted:
            yield Violation(f"its marker counts {found}, committed were {wanted}", body.token)


def origins(history: History) -> Iterator[Violation]:
    """From Kafka alone, without a value, what each stream partition published is complete.

    Each record names its stream partition in a header.  The records of one name add up to the
    markers of all stream partitions that have this name, once all of them have finished.  What was
    parked and put back is marked as such, and not counted.
    """
    tokens = {change.order_key: change.token for change in history.committed}
    for record in history.published:
        token = tokens.get(record.order_key)
        if record.origin is None or token is None or record.is_copy:
            continue
        if record.origin != origin_of(token):
            text = f"names {record.origin.hex()!r} where {token} brought it"
            yield Violation(text, record.order_key)
    if all(record.origin is not None for record in history.published):
        yield from _incomplete(history)


def _incomplete(history: History) -> Iterator[Violation]:
    finished = _finished(history)
    open_names = {origin_of(token) for token in _announced(history) - finished.keys()}
    names: dict[bytes, list[PartitionFinished]] = defaultdict(list)
    for token, marker in finished.items():
        names[origin_of(token)].append(marker)
    found: dict[bytes, dict[str, list[bytes]]] = defaultdict(lambda: defaultdict(list))
    redriven = history.redriven
    for record in history.published:
        is_counted = not record.is_copy and record.order_key not in redriven
        if is_counted and record.origin is not None:
            found[record.origin][record.topic].append(record.order_key)
    for name, markers in names.items():
        if name in open_names:
            continue
        kinds = {marker.checksums for marker in markers}
        kind = kinds.pop() if len(kinds) == 1 else None
        read = {topic: _read(order_keys, kind) for topic, order_keys in found[name].items()}
        marked = _marked(markers, kind)
        if read != marked:
            text = f"{name.hex()} has {read} in Kafka, its markers count {marked}"
            yield Violation(text, markers[0].token)


def _announced(history: History) -> set[str]:
    bodies = history.bodies
    announced = {body.child.token for body in bodies if isinstance(body, PartitionAnnounced)}
    started = (body.children for body in bodies if isinstance(body, StreamStarted))
    return announced | {child.token for children in started for child in children}


def _finished(history: History) -> dict[str, PartitionFinished]:
    return {
        body.token: body
        for body in history.bodies
        if isinstance(body, PartitionFinished) and not body.chunk
    }


def _read(order_keys: list[bytes], kind: ChecksumKind | None) -> tuple[int, int]:
    checksum = sum(map(CHECKSUMS[kind], order_keys)) % CHECKSUM_MODULUS if kind is not None else 0
    return len(order_keys), checksum


def _marked(
    markers: list[PartitionFinished], kind: ChecksumKind | None
) -> dict[str, tuple[int, int]]:
    """Add up the totals; checksums of two kinds have no sum."""
    marked: dict[str, tuple[int, int]] = {}
    for total in (total for marker in markers for total in marker.totals):
        mods, checksum = marked.get(total.topic, (0, 0))
        added = total.checksum if kind is not None else 0
        marked[total.topic] = mods + total.mods, (checksum + added) % CHECKSUM_MODULUS
    return marked
