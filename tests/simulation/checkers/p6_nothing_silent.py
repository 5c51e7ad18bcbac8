"""P6: what is given up, set aside or cannot go on is said, with its name and place."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.simulation.history import (
    Full,
    History,
    Parked,
    PutBack,
    Refusal,
    TooLargeStop,
    Violation,
    is_behind,
    whole_bodies,
)
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.order_key import OrderKey
from tidegate.schemas.progress import (
    PartitionAnnounced,
    PartitionFinished,
    SlotChanges,
    SlotProgress,
    StreamStarted,
    TokenSnapshot,
)
from tidegate.schemas.progress_chain import SlotChain
from tidegate.schemas.topics import ROOT_TOKEN


def gaps(history: History) -> Iterator[Violation]:
    """The lineage in Kafka covers the key space without a gap that is not recorded.

    Changes may be given up (`accepted_gaps`), stream partitions never: each marker names all
    children that Spanner made, each of them is announced by each of its parents, and starts where
    the parent has ended.
    """
    announced: set[tuple[str, str]] = set()
    markers: dict[str, list[PartitionFinished]] = {}
    started: list[StreamStarted] = []
    for body in history.bodies:
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


def accepted_gaps(history: History) -> Iterator[Violation]:
    """What is given up is what somebody has accepted, no more, and every output says so.

    A change in a gap is not published, unless it was before: at the first instant of the gap.
    """
    accepted = {one.gap: one for one in history.accepted}
    for gap, times in Counter(history.gaps).items():
        if gap not in accepted:
            yield Violation("a gap that the operator has not accepted", gap.token)
        elif gap.until_us > accepted[gap].until_us:
            yield Violation(f"the gap ends at {gap.until_us}: it can be read before", gap.token)
        if times > 1:
            yield Violation(f"the gap from {gap.from_us} is recorded {times} times", gap.token)
    published = {record.order_key for record in history.published}
    for change in history.within:
        for gap in history.gaps:
            is_inside = gap.from_us < change.commit_timestamp_us < gap.until_us
            if change.token == gap.token and is_inside and change.order_key in published:
                yield Violation("published although it was given up", change.order_key)
    for manifest in history.manifests:
        due = {gap for gap in history.gaps if gap.from_us <= manifest.through_us}
        if set(manifest.gaps) != due:
            yield Violation(f"manifest {manifest.number} names {manifest.gaps}, not {due}")


_NEEDS_AN_OPERATOR = {"TopicsChangedError", "StreamChangedError", "ProgressLost", "ConfigError"}
"""Errors that end a worker with exit code 2: no restart helps before somebody has acted."""


def ground(history: History) -> Iterator[Violation]:
    """What no restart can repair stops the fleet, with an error that names it.

    A right that is lost stops the worker that Kafka denies access: it does not go on and ask again.
    """
    for fault in history.ground:
        stops = [
            stop for stop in history.stops if stop.at >= fault.at and stop.error in fault.errors
        ]
        if not any(subject in stop.text for stop in stops for subject in fault.subjects):
            yield Violation(
                f"{fault.kind}: no worker has stopped and named it", min(fault.subjects)
            )
    for process, times in Counter(denial.process for denial in history.denials).items():
        if times > 1:
            yield Violation(f"{process} went on without a right: it was denied {times} times")
    for topic, batches in history.planned_over_change.items():
        # A topic may change in the middle of a batch, after the batch has looked.
        if len(batches) > 1:
            yield Violation(f"{len(batches)} batches were planned after the topic changed", topic)
    for name in history.survivors:
        yield Violation(f"{name} still runs a minute after {history.ground[-1].kind}")
    for stop in history.stops:
        if stop.error in _NEEDS_AN_OPERATOR:
            if stop.exit_code != 2:
                yield Violation(f"{stop.worker} stopped with {stop.exit_code}: {stop.text}")
        elif stop.error == "PositionExpired" and not (
            "lost_from=" in stop.text and "lost_until=" in stop.text
        ):
            yield Violation(f"{stop.worker} does not name the missing interval: {stop.text}")


ATTEMPTS_MAX = 3


def undeliverable(history: History) -> Iterator[Violation]:
    """A message that its topic cannot take stops its worker by name, and is not tried without end.

    Nothing else may stop a worker for a size: a limit that was raised in time counts.
    """
    for refusal in history.refusals:
        if refusal.size_bytes > refusal.known_bytes_max:
            yield Violation(
                f"{refusal.worker} produced {refusal.size_bytes} bytes for {refusal.topic}, "
                f"and never knew of a limit above {refusal.known_bytes_max}"
            )
    yield from _check_attempts(history)
    for stop in history.too_large:
        yield from _check_stop(history, stop)


def _check_attempts(history: History) -> Iterator[Violation]:
    """Count refusals for one cause.

    A change is a cause of its own for as long as the process lives: that its topic has taken other
    changes says nothing about it.  A progress record is another one after each commit of its slot.
    """
    records = Counter(
        (refusal.process, refusal.topic, refusal.record)
        for refusal in history.refusals
        if refusal.record[1] is not None
    )
    for (process, topic, record), count in records.items():
        if count > ATTEMPTS_MAX:
            yield Violation(f"{process} tried {record} of {topic} {count} times")
    attempts: Counter[tuple[str, str, int]] = Counter()
    steps = sorted([*history.refusals, *history.fenced], key=lambda step: step.at)
    for step in steps:
        if not isinstance(step, Refusal):
            for cause in list(attempts):
                if cause[-1] in step.covers:
                    del attempts[cause]
            continue
        cause = (step.process, step.topic, step.slot)
        attempts[cause] += 1
        if attempts[cause] == ATTEMPTS_MAX + 1:
            yield Violation(f"{step.worker} tried a message of {step.topic} without end")


def _check_stop(history: History, stop: TooLargeStop) -> Iterator[Violation]:
    who = f"{stop.worker} stopped for {stop.size_bytes} bytes in {stop.topic}"
    if stop.size_bytes <= stop.limit_bytes:
        yield Violation(f"{who}, which its limit of {stop.limit_bytes} allows")
    at_us = stop.commit_timestamp_us
    named = (stop.topic, at_us)
    if named not in {(change.topic, change.commit_timestamp_us) for change in history.committed}:
        yield Violation(f"{who} and named no change that was committed")
    elif _smallest_since(history, stop, at_us or 0) >= stop.size_bytes:
        yield Violation(f"{who}, which its topic has taken ever since the change was committed")


def _smallest_since(history: History, stop: TooLargeStop, since_us: int) -> int:
    of_topic = [limit for limit in history.limits if limit.topic == stop.topic]
    before = [limit for limit in of_topic if limit.at_us <= since_us][-1:] or of_topic[:1]
    after = [limit for limit in of_topic if since_us < limit.at_us <= stop.at_us]
    return min(limit.bytes_max for limit in (*before, *after))


_FOLLOWER = "KeyParked"  # the reason of a good change whose key is parked
_Story = list[Parked | PutBack]


def parking(history: History) -> Iterator[Violation]:
    """A poison change and every later one of its key are parked, in order, once; nothing else is.

    Until a key is put back: then all that is parked of it is, and its later changes flow.
    """
    redriven = set(history.redriven)
    yield from _check_times(history, redriven)
    by_key: dict[tuple[str, bytes], _Story] = defaultdict(list)
    for one in sorted([*history.parked, *history.put_back], key=lambda one: one.offset):
        by_key[one.topic, one.key].append(one)
    poison = history.all_poison
    for story in by_key.values():
        yield from _check_key(poison, story)
    yield from _check_what_passed(history, redriven)
    yield from _check_counts(history)


def _check_times(history: History, redriven: set[bytes]) -> Iterator[Violation]:
    committed = {change.order_key for change in history.within}
    published = {record.order_key for record in history.published}
    for order_key, times in Counter(change.order_key for change in history.parked).items():
        if times > 1:
            yield Violation(f"parked {times} times", order_key)
        if order_key in published and order_key not in redriven:
            yield Violation("parked and published", order_key)
        if order_key not in published and order_key in redriven:
            yield Violation("put back, and not published", order_key)
        if order_key not in committed:
            yield Violation("parked, but never committed within the stream", order_key)


def _check_key(poison: set[bytes], story: _Story) -> Iterator[Violation]:
    first: OrderKey | None = None
    before: OrderKey | None = None
    for change in story:
        now = OrderKey.decode(change.order_key)
        if before is not None and is_behind(now, before):
            yield Violation("parked behind a later change of its key", change.order_key)
        before = now
        if isinstance(change, PutBack):
            if first is None:
                yield Violation("a key put back that was not parked", change.order_key)
            first = None
            continue
        if change.reason == _FOLLOWER:
            if first is None or is_behind(now, first):
                yield Violation("parked without a poison change before it", change.order_key)
            continue
        first = first or now
        if change.reason != "MessageTooLarge" and change.order_key not in poison:
            yield Violation(f"parked as {change.reason}, and is no poison", change.order_key)


def _check_what_passed(history: History, redriven: set[bytes]) -> Iterator[Violation]:
    firsts: dict[tuple[str, bytes], OrderKey] = {}
    for change in history.parked:
        if change.order_key not in redriven:
            firsts.setdefault((change.topic, change.key), OrderKey.decode(change.order_key))
    for record in history.published:
        first = firsts.get((record.topic, record.key))
        if first is None or record.is_copy:
            continue
        if is_behind(first, OrderKey.decode(record.order_key)):
            yield Violation("has passed a parked change of its key", record.order_key)


def _check_counts(history: History) -> Iterator[Violation]:
    found = Counter(change.token for change in history.parked)
    for body in history.bodies:
        if isinstance(body, PartitionFinished) and body.parked != found[body.token]:
            text = f"its marker counts {body.parked} parked changes, there are {found[body.token]}"
            yield Violation(text, body.token)
    for token in _open_tokens(history):
        if token.parked != found[token.token]:
            text = f"its slot counts {token.parked} parked changes, there are {found[token.token]}"
            yield Violation(text, token.token)


def _open_tokens(history: History) -> Iterator[TokenSnapshot]:
    chains: dict[int, SlotChain] = {}
    for entry, body in whole_bodies(history):
        if isinstance(body, SlotProgress):
            chains[entry.slot] = SlotChain(body, offset=entry.offset)
        elif isinstance(body, SlotChanges) and entry.slot in chains:
            try:
                chains[entry.slot].add(body)
            except SchemaError:
                continue  # what compaction has left of an older chain
    for chain in chains.values():
        yield from chain.tokens.values()


def parked_limit(history: History) -> Iterator[Violation]:
    """A stream partition parks keys up to the limit, and stops where it would need one key more."""
    limit = history.parked_keys_max
    if limit is None:
        return
    inherited: dict[str, set[int]] = defaultdict(set)
    snapshots: list[TokenSnapshot] = []
    for _, body in whole_bodies(history):
        if isinstance(body, PartitionAnnounced):
            inherited[body.child.token] |= set(body.parked_keys)
        elif isinstance(body, SlotProgress):
            snapshots += body.tokens
        elif isinstance(body, SlotChanges):
            snapshots += body.added
    for snapshot in snapshots:
        own = set(snapshot.parked_keys) - inherited[snapshot.token]
        if own and len(snapshot.parked_keys) > limit:
            parked = len(snapshot.parked_keys)
            text = f"has {parked} parked keys, {len(own)} of its own; {limit} may be"
            yield Violation(text, snapshot.token)
    poison = history.all_poison if history.full else set()
    for full in history.full:
        yield from _check_full(history, full, poison, limit)


def _check_full(
    history: History, full: Full, poison: set[bytes], limit: int
) -> Iterator[Violation]:
    names = {one.name: (one.topic, one.key) for one in history.parked}
    held = {names[name] for name in full.keys if name in names}
    found = {
        (change.topic, change.key)
        for change in history.within
        if change.commit_timestamp_us == full.commit_timestamp_us
        and change.token in (full.token, None)
        and (full.may_be_large or change.order_key in poison)
    }
    if len(full.keys) + len(found - held) <= limit:
        text = f"stopped for too many parked keys with {len(full.keys)}; {limit} may be"
        yield Violation(text, full.token)
