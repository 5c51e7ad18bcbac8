"""Mirrors that are broken on purpose: what they take, when, and what manifests say of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.simulation.gate_sinks import MirrorModel
from tests.simulation.mutant import Mutant
from tidegate.spark_consumer.batch import effect_loop
from tidegate.spark_consumer.core import gate
from tidegate.spark_consumer.core.cadence import Cadence
from tidegate.spark_consumer.core.plan import MergeMirror, Plan
from tidegate.spark_consumer.sinks import release_writer
from tidegate.spark_consumer.sinks.port import Merge, TableVersion

__all__ = ["BROKEN_MIRRORS"]


_merge = MirrorModel.merge


def _merge_the_last_release(self: MirrorModel, merge: Merge) -> Any:
    return _merge(self, replace(merge, after=merge.through - 1))


def _merge_without_the_last_release(self: MirrorModel, merge: Merge) -> Any:
    self._changelog, kept = {}, self._changelog
    for name, table in kept.items():
        self._changelog[name] = replace(table, commits=[*table.commits])
        for number, commit in enumerate(table.commits):
            rows = tuple(row for row in commit.added if row.release != merge.through)
            self._changelog[name].commits[number] = replace(commit, added=rows)
    versions = _merge(self, merge)
    self._changelog = kept
    return versions


def _merge_in_the_order_of_ordinals(self: MirrorModel, merge: Merge) -> Any:
    """Take ordinals for places in all releases, although each release counts from 0."""
    apply = self._apply

    def broken(table: Any, one: Any, *rest: Any) -> None:
        one.frame.rows.sort(key=lambda row: row.ordinal)
        apply(table, one, *rest)

    self._apply = broken  # type: ignore[method-assign]
    try:
        return _merge(self, merge)
    finally:
        del self._apply


def _as_of_the_release(release: int, versions: Mapping[str, TableVersion]) -> Any:
    return {table: replace(version, release=None) for table, version in versions.items()}


_release_steps = Plan._release_steps


def _steps_without_those_before(self: Plan) -> Any:
    """Leave out what has to be merged before the batch's own releases."""
    first = min((bounds.number for bounds in self.releases), default=0)
    later = tuple(through for through in self.merges if through >= first)
    return _release_steps(replace(self, merges=later))


def _at_the_newest_release(state: Any, plan: Plan) -> None:
    return None


def _never(self: Cadence, **times: Any) -> bool:
    return False


def _joins_with_what_follows(state: Any, wanted: Any) -> tuple[str, ...]:
    return ()


_merge_mirrors = effect_loop.merge_mirrors


def _joins_where_the_others_stand(step: MergeMirror, **more: Any) -> Any:
    return _merge_mirrors(replace(step, joining=()), **more)


BROKEN_MIRRORS = (
    Mutant(
        "a mirror that joins with what follows alone",
        "mirrored_rows",
        ((gate, "joining_mirrors", _joins_with_what_follows),),
    ),
    Mutant(
        "a mirror that joins and takes what others lack alone",
        "mirrored_rows",
        ((effect_loop, "merge_mirrors", _joins_where_the_others_stand),),
    ),
    Mutant(
        "a merge of the last release alone",
        "mirrored_rows",
        ((MirrorModel, "merge", _merge_the_last_release),),
    ),
    Mutant(
        "a merge that leaves out its last release",
        "mirrored_rows",
        ((MirrorModel, "merge", _merge_without_the_last_release),),
    ),
    Mutant(
        "several releases merged in the order of their ordinals",
        "mirrored_rows",
        ((MirrorModel, "merge", _merge_in_the_order_of_ordinals),),
    ),
    Mutant(
        "a manifest that takes the mirror's older cut for its own",
        "mirrored_rows",
        ((release_writer, "_standing_at", _as_of_the_release),),
    ),
    Mutant(
        "a merge before a change of schemas that is planned and not done",
        "mirrored_rows",
        ((Plan, "_release_steps", _steps_without_those_before),),
    ),
    Mutant(
        "a state that forgets what the mirror lacks",
        "mirrored_rows",
        ((gate, "_mirror_release", _at_the_newest_release),),
    ),
    Mutant(
        "a mirror that is never due",
        "mirror_cadence",
        ((Cadence, "is_due", _never),),
    ),
)
