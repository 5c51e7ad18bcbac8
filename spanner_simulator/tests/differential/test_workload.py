"""A seed is its workload, and the seeds together contain what they are meant to."""

from __future__ import annotations

from differential.kinds import GOOGLE, POSTGRES
from differential.steps import (
    ChangeSchema,
    Commit,
    Delete,
    Dml,
    Query,
    Read,
    ReadWrite,
    ShowSchema,
    Write,
)
from differential.workload import dialect_of, make_workload

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
        *(ChangeSchema, ShowSchema, Commit, ReadWrite, Read, Query)
    }
    assert {type(one) for one in inside} == {Dml, Read, Query}
    assert {type(one) for one in writes} == {Write, Delete}
    assert {one.kind for one in writes if isinstance(one, Write)} == {
        *("insert", "update", "insert_or_update", "replace")
    }
    assert {step.commits for step in steps if isinstance(step, ReadWrite)} == {True, False}
