from __future__ import annotations

import pytest
from google.cloud.spanner_v1 import types as spanner

from spanner_simulator.core.rows.mutations import Delete, KeyBound, KeySet, KeySpan
from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.server.mutation_messages import key_set, mutation


def test_a_delete_with_keys_ranges_and_everything() -> None:
    message = spanner.Mutation.pb()()
    keys = message.delete.key_set
    message.delete.table = "T"
    keys.keys.add().values.add(bool_value=True)
    span = keys.ranges.add()
    span.start_open.values.add(number_value=1)
    span.end_closed.SetInParent()
    keys.all_ = True

    assert mutation(message) == Delete(
        "T",
        KeySet(
            ([True],),
            (KeySpan(KeyBound([1.0], inclusive=False), KeyBound([], inclusive=True)),),
            everything=True,
        ),
    )


def test_a_range_without_an_end_and_an_unknown_mutation_are_refused() -> None:
    open_ended = spanner.KeySet.pb()()
    open_ended.ranges.add().start_closed.SetInParent()
    with pytest.raises(SpannerError) as caught:
        key_set(open_ended)
    assert caught.value.code is Code.INVALID_ARGUMENT

    with pytest.raises(SpannerError, match=r"Mutation\.operation"):
        mutation(spanner.Mutation.pb()())


@pytest.mark.parametrize("kind", ["send", "ack"])
def test_mutations_of_queues_are_refused_by_name(kind: str) -> None:
    message = spanner.Mutation.pb()()
    getattr(message, kind).SetInParent()
    with pytest.raises(SpannerError, match=f"mutations of kind {kind}") as caught:
        mutation(message)
    assert caught.value.code is Code.UNIMPLEMENTED
