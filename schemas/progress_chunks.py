"""Progress records as sets of chunks that fit a message.

`split` cuts a record, and `ProgressAssembler` joins the chunks; each is the inverse of the other
(`docs/protocol.md`, 5.5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar

from tidegate.schemas.progress import (
    ChildPartition,
    PartitionAnnounced,
    PartitionFinished,
    PartitionGap,
    ProgressBody,
    SlotChanges,
    SlotPaused,
    SlotProgress,
    SlotWatermark,
    SlotWatermarkExpired,
    StreamControl,
    StreamStarted,
    TableAdded,
    TokenMove,
    TokenSnapshot,
    TopicOffset,
    TopicTotals,
    WorkerDrain,
)

CHUNK_ITEMS_MAX = 400
"""Tokens or children in one chunk."""

CHUNK_BYTES_MAX = 384 * 1024
"""Estimated bytes of the cut parts in one chunk, so that a chunk stays below 512 KiB."""

_OPEN_SETS_MAX = 64
_Indivisible = (
    PartitionAnnounced
    | SlotWatermarkExpired
    | TableAdded
    | PartitionGap
    | StreamControl
    | WorkerDrain
    | SlotPaused
)
_Divisible: TypeAlias = (
    StreamStarted | PartitionFinished | SlotProgress | SlotChanges | SlotWatermark
)
_Item = TypeVar("_Item")
_Token = TypeVar("_Token", TokenSnapshot, TokenMove)


def split(
    body: ProgressBody, *, items_max: int = CHUNK_ITEMS_MAX, bytes_max: int = CHUNK_BYTES_MAX
) -> list[ProgressBody]:
    """Return the record as one or more chunks, each within both limits.

    `items_max` counts tokens and children.  An item that is larger than a chunk gets its own chunk,
    except that a token's boundary, totals and parked keys are cut.
    """
    if isinstance(body, _Indivisible):
        return [body]
    match body:
        case SlotChanges():
            return _split_changes(body, items_max, bytes_max)
        case SlotWatermark():
            runs = _batches(body.vector, _entry_weight, bytes_max)
            return _numbered([replace(body, vector=entries) for entries in runs])
        case SlotProgress():
            cut = zip(*_cut_snapshot(body, items_max, bytes_max), strict=True)
            return _numbered([replace(body, vector=vector, tokens=items) for vector, items in cut])
        case StreamStarted():
            each = sum(_fixed_weight(topic.topic, topic.topic_id) for topic in body.topics)
            sets = _batches(body.children, _weight, bytes_max, items_max, first=each, each=each)
            return _numbered([replace(body, children=children) for children in sets])
        case PartitionFinished():
            each = sum(_fixed_weight(parent) for parent in body.parents)
            head = each + sum(_fixed_weight(total.topic) for total in body.totals)
            sets = _batches(body.children, _weight, bytes_max, items_max, first=head, each=each)
            return _numbered(
                [
                    replace(body, children=children, totals=() if index else body.totals)
                    for index, children in enumerate(sets)
                ]
            )


def _numbered(parts: Sequence[_Divisible]) -> list[ProgressBody]:
    """Return the parts of a record as the chunks of one set."""
    return [replace(part, chunk=index, chunks=len(parts)) for index, part in enumerate(parts)]


class ProgressAssembler:
    """Joins the chunks of one slot, in the order of their offsets.

    It returns only complete sets of one record.
    """

    def __init__(self) -> None:
        """Start without open sets."""
        self._open: dict[ProgressBody, tuple[int, list[ProgressBody]]] = {}

    def add(self, body: ProgressBody, *, offset: int) -> tuple[ProgressBody, int] | None:
        """Take the next chunk; return the record that it completes and its first chunk's offset.

        One transaction writes the chunks of a set in order, so a chunk out of order is ignored.
        Only the last few incomplete sets are kept.
        """
        if isinstance(body, _Indivisible) or body.chunks == 1:
            return body, offset
        identity = _set_identity(body)
        if body.chunk == 0:
            self._open.pop(identity, None)
            self._open[identity] = (offset, [body])
            if len(self._open) > _OPEN_SETS_MAX:
                del self._open[next(iter(self._open))]
            return None
        first_offset, chunks = self._open.get(identity, (offset, []))
        if len(chunks) != body.chunk:
            self._open.pop(identity, None)
            return None
        chunks.append(body)
        if len(chunks) < body.chunks:
            return None
        del self._open[identity]
        return _join(chunks), first_offset


def _set_identity(body: _Divisible) -> ProgressBody:
    """Return the identity that all chunks of a set share with each other and with no other set."""
    match body:
        case StreamStarted():
            return replace(body, children=(), chunk=0)
        case PartitionFinished():
            return replace(body, children=(), totals=(), chunk=0)
        case SlotProgress():
            return replace(body, tokens=(), vector=(), chunk=0)
        case SlotChanges():
            return replace(body, vector=(), added=(), moved=(), removed=(), chunk=0)
        case SlotWatermark():
            return replace(body, vector=(), chunk=0)


def _join(chunks: list[ProgressBody]) -> ProgressBody:
    first = chunks[0]
    if isinstance(first, _Indivisible):
        return first
    match first:
        case SlotProgress():
            parts = [chunk for chunk in chunks if isinstance(chunk, SlotProgress)]
            vector = tuple(entry for part in parts for entry in part.vector)
            tokens = _join_tokens(token for part in parts for token in part.tokens)
            return replace(first, vector=vector, tokens=tokens, chunk=0, chunks=1)
        case StreamStarted():
            children = tuple(k for c in chunks if isinstance(c, StreamStarted) for k in c.children)
            return replace(first, children=children, chunk=0, chunks=1)
        case PartitionFinished():
            kids = tuple(k for c in chunks if isinstance(c, PartitionFinished) for k in c.children)
            return replace(first, children=kids, chunk=0, chunks=1)
        case SlotChanges():
            changes = [chunk for chunk in chunks if isinstance(chunk, SlotChanges)]
            return replace(
                first,
                vector=tuple(entry for part in changes for entry in part.vector),
                added=_join_tokens(token for part in changes for token in part.added),
                moved=_join_tokens(move for part in changes for move in part.moved),
                removed=tuple(number for part in changes for number in part.removed),
                chunk=0,
                chunks=1,
            )
        case SlotWatermark():
            heads = [chunk for chunk in chunks if isinstance(chunk, SlotWatermark)]
            vector = tuple(entry for part in heads for entry in part.vector)
            return replace(first, vector=vector, chunk=0, chunks=1)


def _join_tokens(tokens: Iterable[_Token]) -> tuple[_Token, ...]:
    """Return the tokens with the parts of each joined; parts are neighbours."""
    joined: list[_Token] = []
    for token in tokens:
        if joined and _head(joined[-1]) == _head(token):
            joined[-1] = _joined(joined[-1], token)
        else:
            joined.append(token)
    return tuple(joined)


def _joined(first: _Token, second: _Token) -> _Token:
    lists: dict[str, Any] = {n: getattr(first, n) + getattr(second, n) for n in _lists(first)}
    return replace(second, **lists)


def _cut_snapshot(
    body: SlotProgress, items_max: int, bytes_max: int
) -> tuple[list[tuple[TopicOffset, ...]], list[tuple[TokenSnapshot, ...]]]:
    """Return each chunk's part of the vector and of the tokens.

    The vector comes first; tokens begin in the chunk that holds its last entry.
    """
    vectors = list(_batches(body.vector, _entry_weight, bytes_max))
    parts = tuple(part for token in body.tokens for part in _parts(token, bytes_max))
    vector_bytes = sum(_entry_weight(entry) for entry in vectors[-1])
    tokens = list(_batches(parts, _weight, bytes_max, items_max, first=vector_bytes))
    return vectors + [()] * (len(tokens) - 1), [()] * (len(vectors) - 1) + tokens


def _split_changes(body: SlotChanges, items_max: int, bytes_max: int) -> list[ProgressBody]:
    """Return changes as one chunk, or as one list after the other if they do not fit."""
    added = tuple(part for token in body.added for part in _parts(token, bytes_max))
    moved = tuple(part for move in body.moved for part in _parts(move, bytes_max))
    weight = sum(map(_entry_weight, body.vector))
    weight += sum(map(_weight, added)) + sum(map(_weight, moved))
    items = len(added) + len(moved) + len(body.removed)
    if items <= items_max and weight <= bytes_max:
        return [body]
    empty = replace(body, vector=(), added=(), moved=(), removed=())
    runs: list[SlotChanges] = []
    if body.vector:
        entries = _batches(body.vector, _entry_weight, bytes_max)
        runs += [replace(empty, vector=run) for run in entries]
    if added:
        tokens = _batches(added, _weight, bytes_max, items_max)
        runs += [replace(empty, added=run) for run in tokens]
    if moved:
        moves = _batches(moved, _weight, bytes_max, items_max)
        runs += [replace(empty, moved=run) for run in moves]
    if body.removed:
        numbers = _batches(body.removed, lambda _: 5, bytes_max, items_max)
        runs += [replace(empty, removed=run) for run in numbers]
    return _numbered(runs)


def _parts(token: _Token, bytes_max: int) -> Iterator[_Token]:
    """Yield a token, cut in its boundary, totals and parked keys if it does not fit a chunk."""
    head = _head(token)
    each = _weight(head)
    if _weight(token) <= bytes_max or 2 * each > bytes_max:
        yield token
        return
    for name, weigh in _lists(token).items():
        if items := getattr(token, name):
            for run in _batches(items, weigh, bytes_max, first=each, each=each):
                changed: dict[str, Any] = {name: run}
                yield replace(head, **changed)


def _head(token: _Token) -> _Token:
    """Return the fields that all parts of a token share."""
    empty: dict[str, Any] = dict.fromkeys(_lists(token), ())
    return replace(token, **empty)


def _lists(token: TokenSnapshot | TokenMove) -> dict[str, Callable[[Any], int]]:
    """Return the lists of a token that may be cut, with the weight of their items."""
    lists: dict[str, Callable[[Any], int]] = {"boundary": _pair_weight, "totals": _totals_weight}
    if isinstance(token, TokenSnapshot):
        lists["parked_keys"] = _key_weight
    return lists


def _batches(
    items: tuple[_Item, ...],
    weigh: Callable[[_Item], int],
    bytes_max: int,
    items_max: int | None = None,
    *,
    first: int = 0,
    each: int = 0,
) -> Iterator[tuple[_Item, ...]]:
    """Cut items into runs within both limits; without items the result is one empty run.

    `first` and `each` are the bytes of the first run and of every other run without their items.
    The first run is empty if its first item does not fit it and fits another run better.
    """
    start, taken, is_begun = 0, first, first > each
    for index, item in enumerate(items):
        weight = weigh(item)
        is_full = index - start == items_max or taken + weight > bytes_max
        if is_full and (index > start or is_begun):
            yield items[start:index]
            start, taken, is_begun = index, each, False
        taken += weight
    yield items[start:]


def _fixed_weight(*texts: str) -> int:
    """Return the estimated bytes of a few texts and numbers."""
    return 32 + sum(len(text.encode()) for text in texts)


def _entry_weight(entry: TopicOffset) -> int:
    return _fixed_weight(entry.topic)


def _pair_weight(entry: tuple[str, str]) -> int:
    return sum(len(text.encode()) + 4 for text in entry)


def _totals_weight(totals: TopicTotals) -> int:
    return 48 + len(totals.topic.encode()) + 4


def _key_weight(_: int) -> int:
    return 10  # a long takes at most as many bytes as a varint


def _weight(item: ChildPartition | TokenSnapshot | TokenMove) -> int:
    """Return the estimated bytes of an item, too many rather than too few."""
    fixed = 32
    if not isinstance(item, ChildPartition):
        fixed += sum(map(_pair_weight, item.boundary)) + sum(map(_totals_weight, item.totals))
    if isinstance(item, TokenMove):
        return fixed
    texts = [item.token, *item.parents]
    if isinstance(item, TokenSnapshot):
        texts += item.parents_heard if item.stopped is None else (*item.parents_heard, item.stopped)
        fixed += sum(map(_key_weight, item.parked_keys))
    return fixed + sum(len(text.encode()) + 4 for text in texts)
