"""The picture of a lineage: stream partitions over time, with splits, merges and moves.

Few stream partitions are drawn one by one.  Many are summed up by slot, so that the picture stays
readable and small; a slot, or a shorter time, shows them again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from tidegate.producer.cli.console.charts import Tick, time_ticks
from tidegate.producer.cli.console.lives import WORST_FIRST, Kind, Life

WIDTH = 1000
LEFT, LABELS, RIGHT = 8, 124, 10
"""Margins; labels of rows take a wider one."""
TOP = 22
ROW = 18
_BOX = 12
_LABEL_WIDTH = 64
_LABEL_END = 8
SINGLE_MAX = 150
"""Beyond this number, stream partitions are summed up by slot; of one slot the worst are drawn."""
_GROUPS_MAX = 64
_CELLS = 80
_SHADES = 5


@dataclass(frozen=True, slots=True)
class Box:
    """One stream partition, or how many of a slot were open in a part of the time."""

    x: float
    y: float
    width: float
    look: str
    """A class of the style sheet."""
    title: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """The label of a row, and the slots that it opens."""

    y: float
    label: str
    slots: str = ""
    """Empty: it opens nothing."""
    look: str = ""


class Change(StrEnum):
    """How children replaced a stream partition."""

    SPLIT = "split"
    MERGE = "merge"
    MOVE = "move"


@dataclass(frozen=True, slots=True)
class Arrow:
    """From a stream partition to its child."""

    path: str
    change: Change


@dataclass(frozen=True, slots=True)
class LineagePicture:
    """The parts of a picture."""

    height: int
    boxes: tuple[Box, ...]
    rows: tuple[Row, ...]
    ticks: tuple[Tick, ...]
    arrows: tuple[Arrow, ...] = ()
    shown: int = 0
    """Stream partitions that are drawn or counted."""
    left_out: int = 0
    """Those of the same time and slots that the picture has no room for."""
    is_summary: bool = False
    summary: str = ""
    """The picture in words."""


def lineage_picture(
    lives: Sequence[Life],
    *,
    from_us: int,
    now_us: int,
    slots: tuple[int, int] | None,
) -> LineagePicture:
    """Return the picture of the time from `from_us` until now.

    `slots` are the first and the last slot that are shown; None: all of them.
    """
    chosen = [
        life
        for life in lives
        if life.ends_us(now_us) >= from_us and (slots is None or slots[0] <= life.slot <= slots[1])
    ]
    counts = Counter(life.kind for life in chosen)
    words = ", ".join(f"{counts[kind]} {kind}" for kind in Kind if counts[kind]) or "none"
    is_one_slot = slots is not None and slots[0] == slots[1]
    if len(chosen) > SINGLE_MAX and not is_one_slot:
        return _summed(chosen, from_us, now_us, words, slots)
    return _drawn(chosen, from_us, now_us, words)


class _Scale:
    """The horizontal places of times."""

    def __init__(self, from_us: int, now_us: int, *, left: int) -> None:
        self._from_us = from_us
        self._span_us = max(now_us - from_us, 1)
        self._left = left
        self.ticks = time_ticks(from_us, now_us, left=left, right=WIDTH - RIGHT)

    def x(self, at_us: int) -> float:
        share = (max(at_us, self._from_us) - self._from_us) / self._span_us
        return round(self._left + min(share, 1.0) * (WIDTH - self._left - RIGHT), 1)


# ---------------------------------------------------------------- one by one


def _drawn(chosen: Sequence[Life], from_us: int, now_us: int, words: str) -> LineagePicture:
    """Return a picture with a box for each stream partition; of too many, for the worst."""
    drawn = sorted(chosen, key=lambda life: _importance(life, now_us))[:SINGLE_MAX]
    drawn.sort(key=lambda life: (life.start_us, life.token))
    scale = _Scale(from_us, now_us, left=LEFT)
    lane_of: dict[str, int] = {}
    ends_us: list[int] = []
    boxes: list[Box] = []
    arrows: list[Arrow] = []
    by_token = {life.token: life for life in drawn}
    children = Counter(parent for life in drawn for parent in life.parents)
    for life in drawn:
        lane = _lane(life, lane_of, ends_us)
        lane_of[life.token] = lane
        if lane == len(ends_us):
            ends_us.append(0)
        ends_us[lane] = life.ends_us(now_us)
        boxes += _boxes(life, _y(lane), scale, now_us)
        for parent in life.parents:
            if parent in lane_of:
                change = _change(life, children[parent])
                path = _path(scale, by_token[parent], life, lane_of, now_us)
                arrows.append(Arrow(path, change))
    return LineagePicture(
        height=TOP + ROW * max(len(ends_us), 1) + 6,
        boxes=tuple(boxes),
        rows=(),
        ticks=scale.ticks,
        arrows=tuple(arrows),
        shown=len(drawn),
        left_out=len(chosen) - len(drawn),
        summary=words,
    )


def _importance(life: Life, now_us: int) -> tuple[int, int]:
    """Return a sort key: the worst first, then those furthest behind, or that ended last."""
    if life.kind is Kind.FINISHED:
        return WORST_FIRST[life.kind], -life.ends_us(now_us)
    return WORST_FIRST[life.kind], life.watermark_us or life.start_us


def _lane(life: Life, lane_of: dict[str, int], ends_us: list[int]) -> int:
    """Return a row that is free at the start: a parent's if possible, else the first."""
    lanes = [lane_of[parent] for parent in life.parents if parent in lane_of]
    free = (lane for lane in (*lanes, *range(len(ends_us))) if ends_us[lane] <= life.start_us)
    return next(free, len(ends_us))


def _y(lane: int) -> int:
    return TOP + lane * ROW


def _boxes(life: Life, y: int, scale: _Scale, now_us: int) -> Iterator[Box]:
    """Yield a box for the time that is published, and one for the time that is not."""
    title = _title(life, now_us)
    end_us = life.ends_us(now_us)
    done_us = end_us if life.end_us is not None else life.watermark_us or life.start_us
    left, done, right = scale.x(life.start_us), scale.x(done_us), scale.x(end_us)
    label = life.token[-_LABEL_END:] if max(done, right) - left > _LABEL_WIDTH else ""
    yield Box(left, y, max(done - left, 1.5), str(life.kind), title, label)
    if right > done:
        yield Box(done, y, right - done, f"{life.kind} behind", title)


def _title(life: Life, now_us: int) -> str:
    parts = [life.token, str(life.kind), f"slot {life.slot}"]
    if life.worker:
        parts.append(f"worker {life.worker}")
    if life.watermark_us is not None:
        parts.append(f"{(now_us - life.watermark_us) / 1_000_000:.1f} s behind")
    return ", ".join([*parts, *([life.reason] if life.reason else [])])


def _change(child: Life, children: int) -> Change:
    if len(child.parents) > 1:
        return Change.MERGE
    return Change.SPLIT if children > 1 else Change.MOVE


def _path(scale: _Scale, parent: Life, child: Life, lane_of: dict[str, int], now_us: int) -> str:
    x1, x2 = scale.x(parent.ends_us(now_us)), scale.x(child.start_us)
    y1, y2 = (_y(lane_of[life.token]) + _BOX / 2 for life in (parent, child))
    return f"M{x1} {y1}C{x1 + 10} {y1} {x2 - 10} {y2} {x2} {y2}"


# ---------------------------------------------------------------- summed up


def _summed(
    chosen: Sequence[Life], from_us: int, now_us: int, words: str, slots: tuple[int, int] | None
) -> LineagePicture:
    """Return a picture with a row for each slot, or for as many slots as fit."""
    first = 0 if slots is None else slots[0]
    last = max(life.slot for life in chosen) if slots is None else slots[1]
    size = -(-(last - first + 1) // _GROUPS_MAX)
    groups: dict[int, list[Life]] = {number: [] for number in range((last - first) // size + 1)}
    for life in chosen:
        groups[(life.slot - first) // size].append(life)
    counted = {number: _open_by_cell(group, from_us, now_us) for number, group in groups.items()}
    most = max((max(counts) for counts in counted.values()), default=0) or 1
    scale = _Scale(from_us, now_us, left=LABELS)
    cell_us = max(now_us - from_us, 1) / _CELLS
    boxes: list[Box] = []
    rows: list[Row] = []
    for lane, (number, group) in enumerate(groups.items()):
        low, high = first + number * size, min(first + (number + 1) * size - 1, last)
        label = f"slot {low}" if low == high else f"{low} to {high}"
        worst = min((life.kind for life in group), key=WORST_FIRST.__getitem__, default=Kind.OPEN)
        look = str(worst) if WORST_FIRST[worst] < WORST_FIRST[Kind.OPEN] else ""
        rows.append(Row(_y(lane), f"{label}{_marks(group)}", f"{low}-{high}", look))
        for count, run in groupby(enumerate(counted[number]), key=lambda cell: cell[1]):
            cells = [place for place, _ in run]
            if count:
                left = scale.x(round(from_us + cells[0] * cell_us))
                right = scale.x(round(from_us + (cells[-1] + 1) * cell_us))
                shade = -(-count * _SHADES // most)
                title = f"{label}: {count} open"
                boxes.append(Box(left, _y(lane), round(right - left, 1), f"shade{shade}", title))
    return LineagePicture(
        height=TOP + ROW * len(rows) + 6,
        boxes=tuple(boxes),
        rows=tuple(rows),
        ticks=scale.ticks,
        shown=len(chosen),
        is_summary=True,
        summary=words,
    )


def _open_by_cell(group: Iterable[Life], from_us: int, now_us: int) -> list[int]:
    """Return how many of a group were open in each part of the time."""
    changes = [0] * (_CELLS + 1)
    cell_us = max(now_us - from_us, 1) / _CELLS
    for life in group:
        begin = min(max(int((life.start_us - from_us) / cell_us), 0), _CELLS - 1)
        end = min(max(int((life.ends_us(now_us) - from_us) / cell_us), 0), _CELLS - 1)
        changes[begin] += 1
        changes[end + 1] -= 1
    counts, count = [], 0
    for change in changes[:-1]:
        count += change
        counts.append(count)
    return counts


def _marks(group: Iterable[Life]) -> str:
    counts = Counter(life.kind for life in group)
    marks = [f"{counts[kind]} {kind}" for kind in (Kind.STOPPED, Kind.SLOW) if counts[kind]]
    return f" ({', '.join(marks)})" if marks else ""
