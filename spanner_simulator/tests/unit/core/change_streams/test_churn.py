from __future__ import annotations

import random

import pytest

from spanner_simulator.core.change_streams.churn import ChurnKind, ChurnPolicy, ChurnSettings
from spanner_simulator.core.change_streams.stream_partitions import StreamPartitions


def partitions(count: int) -> StreamPartitions:
    return StreamPartitions(
        random.Random(1), [bytes([index]) for index in range(1, count)], start_us=0
    )


def policy(seed: int = 1, live_max: int = 64, **weights: float) -> ChurnPolicy:
    chosen: dict[ChurnKind, float] = weights or {"split": 1, "merge": 1, "move": 1}  # type: ignore[assignment]
    return ChurnPolicy(random.Random(seed), ChurnSettings(100, live_max, chosen))


def test_nothing_is_due_when_first_seen_and_everything_in_the_end() -> None:
    one, live = policy(), partitions(5)
    assert one.next_due_us() is None
    assert one.due(0, live.live) == []
    due_us = one.next_due_us()
    assert due_us is not None
    assert one.due(due_us - 1, live.live) == []
    assert len(one.due(due_us, live.live)) == 1


def test_no_stream_partition_is_in_two_actions_and_merges_take_neighbours() -> None:
    one, live = policy(split=0, merge=1, move=0), partitions(7)
    one.due(0, live.live)
    actions = one.due(10**9, live.live)
    order = {each.token: index for index, each in enumerate(live.live)}
    used = [token for action in actions for token in action.tokens]
    assert len(used) == len(set(used)) == 7
    assert {action.kind for action in actions} == {"merge", "move"}
    for action in actions:
        if action.kind == "merge":
            assert abs(order[action.tokens[0]] - order[action.tokens[1]]) == 1


@pytest.mark.parametrize("kind", ["split", "move"])
def test_weights_choose(kind: ChurnKind) -> None:
    one, live = policy(**{kind: 1.0}), partitions(4)
    one.due(0, live.live)
    assert {action.kind for action in one.due(10**9, live.live)} == {kind}


@pytest.mark.parametrize("live_count", [1, 5, 6])
def test_splits_of_one_moment_stay_below_the_bound_together(live_count: int) -> None:
    one, live = policy(live_max=6, split=1.0), partitions(live_count)
    one.due(0, live.live)
    kinds = [action.kind for action in one.due(10**9, live.live)]
    assert kinds.count("split") == min(live_count, 6 - live_count)


def test_one_that_is_spared_lives_another_life() -> None:
    one, live = policy(), partitions(1)
    one.due(0, live.live)
    (action,) = one.due(10**9, live.live)
    one.spare(action.tokens[0], 10**9)
    assert one.due(10**9, live.live) == []
    due_us = one.next_due_us()
    assert due_us is not None
    assert due_us > 10**9
