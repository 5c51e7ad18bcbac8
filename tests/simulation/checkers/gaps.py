"""P6: the lineage in Kafka covers the key space without a gap that is not recorded.

Changes may be given up (`accepted_gaps`), stream partitions never: each marker names all children
that Spanner made, each of them is announced by each of its parents, and starts where the parent has
ended.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.history import History, Violation
from tidegate.schemas.progress import PartitionAnnounced, PartitionFinished, StreamStarted
from tidegate.schemas.topics import ROOT_TOKEN


def check(history: History) -> Iterator[Violation]:
    announced: set[tuple[str, str]] = set()
    markers: dict[str, list[PartitionFinished]] = {}
    started: list[StreamStarted] = []
    for entry in history.progress:
        body = entry.record.body
        match body:
            case PartitionAnnounced():
                announced.add((body.parent, body.child.token))
            case PartitionFinished():
                markers.setdefault(body.token, []).append(body)
            case StreamStarted():
                started.append(body)
    for one in started:
        for child in one.children:
            if (ROOT_TOKEN, child.token) not in announced:
                yield Violation("a stream partition of the beginning is not announced", child.token)
    first_us = min((one.start_ns // 1000 for one in started), default=0)
    for token, chunks in markers.items():
        yield from _check_marker(history, token, chunks, announced, first_us)


def _check_marker(
    history: History,
    token: str,
    chunks: list[PartitionFinished],
    announced: set[tuple[str, str]],
    first_us: int,
) -> Iterator[Violation]:
    if len([chunk for chunk in chunks if chunk.chunk == 0]) > 1:
        yield Violation("finished twice", token)
    named = {child.token: child for chunk in chunks for child in chunk.children}
    for child in named:
        if (token, child) not in announced:
            yield Violation(f"its marker names {child}, which it has not announced", token)
    fact, end_us = history.lineage.get(token), history.end_us
    if fact is None:
        return
    if fact.end_us is None or (end_us is not None and fact.end_us > end_us):
        if end_us is None or chunks[0].end_ns // 1000 < end_us:
            yield Violation("finished although Spanner still writes to it", token)
        return
    if history.has_key_moves:
        # Those that started before the stream begins are the root's, or have ended before it.
        started = {child for child in fact.children if history.lineage[child].start_us > first_us}
        for child in sorted(started - {name for by, name in announced if by == token}):
            yield Violation(f"finished, and {child} that it started is not announced", token)
    elif set(named) != set(fact.children):
        yield Violation(f"its marker names {sorted(named)} of {sorted(fact.children)}", token)
    if chunks[0].end_ns // 1000 != fact.end_us:
        yield Violation(f"its marker ends at {chunks[0].end_ns}, it ended at {fact.end_us}", token)
    for child in named.values():
        if child.start_ns // 1000 != fact.end_us:
            yield Violation(f"its child {child.token} does not start at its end", token)
