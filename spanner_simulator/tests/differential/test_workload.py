"""A seed is its workload, and the seeds together contain what they are meant to."""

from __future__ import annotations

import pytest

from differential.kinds import COLUMN_KINDS, GOOGLE, POSTGRES, literal, value
from differential.steps import (
    Batch,
    ChangeSchema,
    Commit,
    Delete,
    Dml,
    PartitionedDml,
    Query,
    Read,
    ReadWrite,
    ShowSchema,
    Write,
    told,
)
from differential.workload import FEATURES, dialect_of, make_workload

SEEDS = range(1, 60)


def test_a_seed_is_its_workload():
    assert make_workload(7) == make_workload(7)
    assert make_workload(7) != make_workload(9)
    assert {dialect_of(seed) for seed in SEEDS} == {GOOGLE, POSTGRES}


def test_every_kind_of_step_is_met():
    steps = [step for seed in SEEDS for step in make_workload(seed).steps]
    inside = [one for step in steps if isinstance(step, ReadWrite) for one in step.actions]
    writes = [one for step in steps for one in getattr(step, "mutations", ())]

    assert {type(step) for step in steps} == {
        *(ChangeSchema, ShowSchema, Commit, ReadWrite, PartitionedDml, Read, Query)
    }
    assert {type(one) for one in inside} == {Dml, Batch, Read, Query}
    assert {type(one) for one in writes} == {Write, Delete}
    assert {one.kind for one in writes if isinstance(one, Write)} == {
        *("insert", "update", "insert_or_update", "replace")
    }
    assert {step.commits for step in steps if isinstance(step, ReadWrite)} == {True, False}
    assert all(told(step) for step in steps)


@pytest.mark.parametrize("feature", FEATURES)
def test_every_feature_can_be_left_out(feature: str):
    workloads = [make_workload(seed, without=frozenset([feature])) for seed in SEEDS]

    assert not any(feature in one.features for one in workloads)
    assert any(feature in make_workload(seed).features for seed in SEEDS)


@pytest.mark.parametrize("dialect", [GOOGLE, POSTGRES])
def test_no_array_holds_a_null(dialect):
    """The emulator ends at one."""
    import random

    chance = random.Random(1)
    arrays = [kind for kind in COLUMN_KINDS[dialect] if kind.element is not None]

    assert all(None not in value(chance, kind, dialect) for kind in arrays for _ in range(50))
    assert all(literal(kind, value(chance, kind, dialect), dialect) for kind in arrays)
