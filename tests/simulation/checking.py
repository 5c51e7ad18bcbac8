"""The checkers by name; each is a file of its own below `checkers`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.simulation.checkers import (
    accepted_gaps,
    bounded_memory,
    captured_values,
    chains,
    chunk_rows,
    commit_order,
    completeness,
    fleet_drift,
    fleet_views,
    gaps,
    ground,
    key_order,
    lineage,
    liveness,
    manifests,
    mirror_cadence,
    mirrored_rows,
    nothing_lost,
    nothing_twice,
    one_plan,
    origins,
    others_advance,
    parked_limit,
    parking,
    pauses,
    query_pace,
    query_turns,
    schema_growth,
    single_writer,
    soundness,
    tables,
    tombstones,
    undeliverable,
    values,
    vectors,
    views,
    watermark,
    whole_transactions,
)
from tests.simulation.history import History, Violation

__all__ = ["CHECKERS", "violations"]

CHECKERS: dict[str, Callable[[History], Iterator[Violation]]] = {
    module.__name__.rpartition(".")[2]: module.check
    for module in (
        nothing_lost,
        nothing_twice,
        key_order,
        chunk_rows,
        commit_order,
        whole_transactions,
        watermark,
        lineage,
        single_writer,
        chains,
        views,
        gaps,
        accepted_gaps,
        ground,
        completeness,
        origins,
        mirrored_rows,
        mirror_cadence,
        captured_values,
        manifests,
        one_plan,
        values,
        others_advance,
        parking,
        parked_limit,
        pauses,
        schema_growth,
        query_pace,
        query_turns,
        fleet_drift,
        fleet_views,
        liveness,
        bounded_memory,
        undeliverable,
        vectors,
        tables,
        tombstones,
        soundness,
    )
}


def violations(history: History) -> dict[str, list[Violation]]:
    """Return what each checker finds; those that find nothing are left out."""
    found = {name: list(check(history)) for name, check in CHECKERS.items()}
    return {name: list_ for name, list_ in found.items() if list_}
