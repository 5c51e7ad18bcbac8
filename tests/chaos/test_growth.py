"""What counts as growth in a stretch without faults."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from tests.chaos.growth import Held, Sample, Sampler, growth_in, held_by


def samples(*, mib=lambda n: 100.0, files=lambda n: 50, pid=lambda n: 7, state=lambda n: 1.0,
            topics=float):  # fmt: skip
    return [
        Sample(
            at_s=10.0 * n,
            committed=100 * n,
            lag_s=1.0,
            programs={"w1": Held(pid(n), mib(n), files(n), 20)},
            sizes_mib={"checkpoint": state(n), "topics": topics(n)},
        )
        for n in range(60)
    ]


@pytest.mark.parametrize(
    ("grown", "named"),
    [
        ({}, []),
        ({"mib": lambda n: 100 + n % 5}, []),
        ({"mib": lambda n: 100 + 2.0 * n}, ["mib of w1: 159.0 became 199.0"]),
        ({"files": lambda n: 50 + 3 * n}, ["files of w1: 138.5 became 198.5"]),
        # It was started again: what it holds is that of a new process.
        ({"mib": lambda n: 100 + 2.0 * n, "pid": lambda n: 7 + n // 30}, []),
        ({"state": lambda n: 1.0 + n}, ["MiB of checkpoint: 30.5 became 50.5"]),
        # Twice as fast at the end, for the same commits.
        ({"topics": lambda n: n + max(0, n - 40)}, ["topics grows by 20000 instead of 10000"]),
    ],
)
def test_what_is_held_may_not_grow(grown, named):
    found = list(growth_in(samples(**grown), from_s=0, until_s=590, state=["checkpoint"]))
    assert len(found) == len(named)
    assert all(one.startswith(name) for one, name in zip(found, named, strict=True))


def test_a_heap_fills_first_and_a_short_stretch_says_nothing():
    grown = samples(mib=lambda n: 100 + 40.0 * n)
    assert list(growth_in(grown, from_s=0, until_s=590, state=[])) != []
    assert list(growth_in(grown, from_s=0, until_s=300, state=[])) == []
    filled = samples(mib=lambda n: 100 + 40.0 * min(n, 15))
    assert list(growth_in(filled, from_s=0, until_s=590, state=[])) == []


def test_a_sample_holds_what_runs_and_what_is_on_disk(tmp_path):
    now = [5.0]
    (tmp_path / "file").write_bytes(b"x" * (3 << 20))
    sampler = Sampler(
        seconds=lambda: now[0],
        programs=lambda: {"this": os.getpid(), "gone": 1 << 22},
        folders={"topics": tmp_path},
        progress=lambda: (12, 0.5),
    )
    sampler.look()
    now[0] += 1.0
    sampler.look()
    now[0] += 10.0
    sampler.look()

    assert [one.at_s for one in sampler.samples] == [5.0, 16.0]
    (first, _) = sampler.samples
    assert (first.committed, first.lag_s, set(first.programs)) == (12, 0.5, {"this"})
    assert first.sizes_mib["topics"] == pytest.approx(3.0, abs=0.1)
    held = held_by(os.getpid())
    assert held == replace(held, pid=os.getpid())
    assert held.mib > 10
    assert held.files > 2
    assert held.threads >= 1
