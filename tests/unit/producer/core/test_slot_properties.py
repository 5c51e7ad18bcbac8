"""A slot is rebuilt the same from wherever its log may be read, and however it was compacted."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tidegate.producer.core.slot import Slot
from tidegate.producer.errors import ProgressLost
from tidegate.schemas.progress import (
    ChildPartition,
    PartitionAnnounced,
    ProgressBody,
    ProgressRecord,
    SlotProgress,
    TokenSnapshot,
)
from tidegate.schemas.progress_chunks import split
from tidegate.schemas.progress_codec import encode_key

EPOCH = "e"


@st.composite
def logs(draw):
    """Return a slot's committed log, as honest owners write it, and the fence offset at its end.

    Tokens are announced, by one or two parents, and finish; snapshots come now and then, in one or
    more chunks, and include what their owner has read by then.
    """
    log: list[ProgressBody] = []
    tokens: dict[str, tuple[int, set[str]]] = {}
    seen: list[tuple[int, PartitionAnnounced]] = []
    position, fence, revision = 0, 0, 0
    for step in range(draw(st.integers(1, 30))):
        kind = draw(st.sampled_from(["announce", "announce", "second", "read", "snapshot"]))
        if kind == "announce":
            parents = draw(st.sampled_from([(), ("p",), ("p", "q")]))
            body = PartitionAnnounced(ChildPartition(f"t{step}", parents, step * 1_000), "p")
            seen.append((len(log), body))
            log.append(body)
        elif kind == "second" and seen:
            child = draw(st.sampled_from(seen))[1].child
            if child.parents == ("p", "q") and all(
                (b.child.token, b.parent) != (child.token, "q") for _, b in seen
            ):
                body = PartitionAnnounced(child, "q")
                seen.append((len(log), body))
                log.append(body)
        elif kind == "read":
            until = draw(st.integers(position, len(log)))
            for offset, body in seen:
                if position <= offset < until:
                    start, heard = tokens.get(body.child.token, (body.child.start_ns, set()))
                    tokens[body.child.token] = start, heard | {body.parent}
            position = until
        elif kind == "snapshot":
            parents_of = {b.child.token: b.child.parents for _, b in seen}
            for token in [t for t, (_, heard) in tokens.items() if heard >= set(parents_of[t])]:
                if draw(st.booleans()):
                    del tokens[token]
            revision += 1
            held = tuple(
                TokenSnapshot(t, start, parents_of[t], tuple(sorted(heard)), start // 1_000 - 1)
                for t, (start, heard) in sorted(tokens.items())
            )
            minute = draw(st.integers(0, 2))
            body = SlotProgress(0, revision, minute, position - 1, (), held)
            fence = min(len(log), position)
            log += split(body, items_max=draw(st.sampled_from([1, 2, 400])))
    return log, fence


def rebuilt(log, begin, *, removed=frozenset()):
    """Return what an owner makes of the log from an offset on."""
    slot = Slot(0, 1)
    slot.start_recovery(committed_offset=begin or None, end_offset=len(log))
    for offset in range(begin, len(log)):
        if offset not in removed:
            slot.add_record(offset, ProgressRecord(EPOCH, "w", log[offset]), epoch=None)
    slot.advance_to(len(log))
    slot.own(EPOCH)
    slot.check_invariants()
    return slot


def contents(slot):
    """Return all that the slot knows, in comparable form."""
    tokens = {
        token: (partition.child, frozenset(partition.heard), partition.published)
        for token, partition in slot.tokens.items()
    }
    return tokens, slot.revision, slot.vector


@given(logs())
def test_the_fences_offset_is_as_good_as_the_beginning(made):
    log, fence = made

    assert contents(rebuilt(log, fence)) == contents(rebuilt(log, 0))


@given(logs(), st.data())
def test_compaction_changes_nothing(made, data):
    log, _ = made
    below = data.draw(st.integers(0, len(log)))
    newest = {encode_key(body): offset for offset, body in enumerate(log[:below])}
    removed = {o for o, body in enumerate(log[:below]) if newest[encode_key(body)] != o}

    assert contents(rebuilt(log, 0, removed=removed)) == contents(rebuilt(log, 0))


@given(logs(), st.data())
def test_what_is_read_a_second_time_changes_nothing(made, data):
    log, _ = made
    assume(log)
    slot, whole = rebuilt(log, 0), rebuilt(log, 0)
    offset = data.draw(st.integers(0, len(log) - 1))
    with pytest.raises(ProgressLost):
        slot.add_record(offset, ProgressRecord(EPOCH, "w", log[offset]), epoch=EPOCH)

    assert (contents(slot), slot.position) == (contents(whole), whole.position)
