"""Gates and sinks that are broken on purpose: what they believe, release and remember."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.simulation import checkpoint as checkpoints
from tests.simulation.consumer import Consumer
from tests.simulation.mutant import Mutant, Patches
from tidegate.spark_consumer.core import batch_run, gate, release
from tidegate.spark_consumer.core.batch_run import BatchRun
from tidegate.spark_consumer.core.frontier import Frontier, Watermark
from tidegate.spark_consumer.core.plan import Plan
from tidegate.spark_consumer.core.slot_view import SlotView, Snapshot

__all__ = ["BROKEN_GATES"]

# ---------------------------------------------------------------- what the gate believes


def _in_effect_at_once(self: Snapshot, has_reached: Any) -> bool:
    return True


def _in_effect_by_data(self: Snapshot, has_reached: Any) -> bool:
    return all(
        has_reached(topic, number, offset)
        for topic, of in self.vector.items()
        if not topic.endswith("-progress")
        for number, offset in of.items()
    )


def _watermark_of_known_slots(self: Frontier) -> Watermark | None:
    if self._stream is None:
        return None
    found = [view.slowest() for view in self._slots.values() if view.current is not None]
    slowest = min((one for one in found if one is not None), default=None)
    return None if slowest is None else Watermark(slowest.watermark_us, slowest.token)


_fold_snapshot = SlotView._fold_snapshot


def _believe_first_chunk(self: SlotView, body: Any) -> None:
    if body.chunk == 0:
        _fold_snapshot(self, replace(body, chunks=1))


_settle = SlotView.settle


def _settle_and_drop(self: SlotView, has_reached: Any) -> None:
    before = self.current
    _settle(self, has_reached)
    if self.current is not before:
        self._announced = {}


_cut = release.cut


def _cut_one_early(*args: Any, through_us: int, **kwargs: Any) -> tuple[int, ...]:
    *bounds, last = _cut(*args, through_us=through_us, **kwargs)
    return (*bounds, last - 1)


_releases_of = release.releases_of


def _releases_without_segments(**kwargs: Any) -> Any:
    return tuple(replace(bounds, segments=()) for bounds in _releases_of(**kwargs))


_find_plan = BatchRun._find_plan


def _find_no_plan(self: BatchRun, plan: Plan | None) -> Any:
    return _find_plan(self, None)


def _write_over(self: checkpoints.Checkpoint, name: str, content: Any) -> None:
    self.write(name, content)


def _after_without_stored(state: Any, plan: Plan) -> Any:
    return gate.after(state, replace(plan, stored=()))


# ---------------------------------------------------------------- drivers and sinks


def _last_change(before: Any, changes: Any) -> dict[str, int] | None:
    *_, last = changes
    return None if last.mod == "D" else dict(last.columns)


def _newest_state(self: Consumer, batch: int) -> str:
    names = [name for name in self._checkpoint.files if name.startswith("states/")]
    return max(names, key=lambda name: int(name[7:-5]))


def _all_of_them(rows: list[Any]) -> list[Any]:
    return rows


def _silent(*args: Any, **kwargs: Any) -> None:
    return None


_NO_SELF_CHECK: Patches = (
    (BatchRun, "check_invariants", _silent),
    (Plan, "check_invariants", _silent),
)

BROKEN_GATES = (
    Mutant(
        "a snapshot in effect before its vector",
        "watermark",
        ((Snapshot, "is_in_effect", _in_effect_at_once),),
    ),
    Mutant(
        "a child forgotten when slots are read in another order",
        "soundness",
        ((Snapshot, "is_in_effect", _in_effect_by_data),),
    ),
    Mutant(
        "W taken before all slots were read",
        "watermark",
        ((Frontier, "watermark", _watermark_of_known_slots),),
    ),
    Mutant(
        "an incomplete set of chunks believed",
        "watermark",
        ((SlotView, "_fold_snapshot", _believe_first_chunk),),
    ),
    Mutant(
        "announcements dropped by any snapshot",
        "watermark",
        ((SlotView, "settle", _settle_and_drop),),
    ),
    Mutant(
        "release bound off by one",
        "nothing_lost",
        ((release, "cut", _cut_one_early), *_NO_SELF_CHECK),
    ),
    Mutant(
        "a release that does not open its segments",
        "nothing_lost",
        ((gate, "releases_of", _releases_without_segments), *_NO_SELF_CHECK),
    ),
    Mutant(
        "a segment that the state does not name",
        "nothing_lost",
        ((batch_run, "after", _after_without_stored), *_NO_SELF_CHECK),
    ),
    Mutant(
        "dedupe before release",
        "nothing_twice",
        ((Consumer, "_unique", staticmethod(_all_of_them)),),
    ),
    Mutant("state loaded as “latest”", "soundness", ((Consumer, "_state_file", _newest_state),)),
    Mutant(
        "a replay that decides again",
        "commit_order",
        ((BatchRun, "_find_plan", _find_no_plan), (checkpoints.Checkpoint, "create", _write_over)),
    ),
    Mutant(
        "a mirror that takes the last change",
        "mirrored_rows",
        ((checkpoints, "fold_row", _last_change),),
    ),
)
