"""Small files are rewritten: in order, without loss, and with little work."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from tidegate.spark_consumer.core.compaction import (
    CompactionBudget,
    CompactionLimits,
    DataFile,
    choose_run,
)

MIB = 1024**2

LIMITS = CompactionLimits(files_min=4, target_bytes=MIB)


def file(place, *, rows=1, size=100, partition=()):
    return DataFile(f"f{place}", size, rows, (place,), place, partition)


def chosen(files, limits=LIMITS, *, budget_files=1_000, budget_bytes=MIB):
    run = choose_run(files, limits, CompactionBudget(budget_files, budget_bytes))
    return [one.place[0] for one in run]


def joined(run):
    """One file with the rows of a run, in its place, and its bytes but for what each file costs."""
    return replace(
        run[0],
        path="+".join(one.path for one in run),
        rows=sum(one.rows for one in run),
        size=sum(one.size for one in run),
    )


def test_a_few_at_the_end_wait_for_more_and_two_are_enough_before_a_larger_one():
    assert chosen([file(n) for n in range(3)]) == []
    assert chosen([file(n) for n in range(4)]) == [0, 1, 2, 3]
    assert chosen([file(0), file(1), file(2, rows=16), file(3)]) == [0, 1]
    assert chosen([file(0), file(1, rows=16), file(2), file(3)]) == []
    # Files come in the order of their places, and those of one partition only.
    files = [file(n) for n in range(8)]
    random.Random(1).shuffle(files)
    assert chosen(files) == list(range(8))
    files = [file(n, partition=(("p", "ab"[n % 2]),)) for n in range(8)]
    assert chosen(files) == [0, 2, 4, 6]
    mixed = [file(0, partition=(("p", None),)), file(1, partition=(("p", "None"),))]
    assert chosen([*mixed, file(2, rows=16, partition=(("p", None),))]) == []


def test_a_file_that_is_large_or_not_ours_is_left_and_parts_its_neighbours():
    files = [file(n) for n in range(6)]
    assert chosen([*files[:3], file(3, size=MIB), *files[4:]]) == [0, 1, 2]
    assert chosen([*files[:1], file(1, rows=None), *files[2:]]) == [2, 3, 4, 5]
    assert chosen([replace(one, rows=None) for one in files]) == []


def test_a_run_is_within_budget_and_target():
    files = [file(n, size=MIB // 8) for n in range(16)]
    assert chosen(files) == list(range(8))
    assert chosen(files, budget_files=3) == [0, 1, 2]
    assert chosen(files, budget_bytes=MIB // 4) == [0, 1]
    assert chosen(files, budget_bytes=MIB // 8) == []
    assert chosen(files, budget_files=-1) == []
    budget = CompactionBudget(10, 1_000)
    budget.take([file(0), file(1)])
    assert (budget.files, budget.bytes) == (8, 800)


@pytest.mark.parametrize("seed", range(20))
def test_order_stays_and_no_row_is_lost_whatever_is_there(seed):
    draw = random.Random(seed)
    files = [
        file(n, rows=draw.choice([0, 1, 1, 3, 20, 400, None]), size=draw.choice([50, 10**5, MIB]))
        for n in range(60)
    ]
    order = "+".join(one.path for one in files)
    while run := choose_run(files, LIMITS, CompactionBudget(draw.randint(2, 9), MIB)):
        first = files.index(run[0])
        assert len(run) > 1
        assert tuple(files[first : first + len(run)]) == run
        assert sum(one.size for one in run) <= LIMITS.target_bytes
        files[first : first + len(run)] = [joined(run)]
    assert "+".join(one.path for one in files) == order


@pytest.mark.parametrize("large_every", [0, 7, 100])
def test_thousands_of_small_releases_are_few_files_and_little_work(large_every):
    limits = CompactionLimits(files_min=32, target_bytes=32 * MIB)
    draw = random.Random(large_every)
    files: list[DataFile] = []
    written = rewritten = most = 0
    for n in range(3_000):
        is_large = large_every and n % large_every == 0
        rows = 400_000 if is_large else draw.randint(1, 50)
        # A large release is of a size that is not rewritten.
        size = 20 * MIB if is_large else 10_000 + 50 * rows
        files.append(file(n, rows=rows, size=size))
        written += 0 if is_large else size
        if n % 32 == 31:
            budget = CompactionBudget(200, limits.target_bytes)
            while run := choose_run(files, limits, budget):
                budget.take(run)
                rewritten += sum(one.size for one in run)
                first = files.index(run[0])
                files[first : first + len(run)] = [joined(run)]
        small = sum(2 * one.size < limits.target_bytes for one in files)
        larger = len(files) - small
        most = max(most, small - larger)
    levels = math.ceil(math.log(50 * 3_000, 32)) + 1
    assert most <= 32 * levels
    assert rewritten <= levels * written
