"""A poison change and every later one of its key are parked, in order, once; nothing else is.

Until a key is put back: then all that is parked of it is, and its later changes flow.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from tests.simulation.history import History, Parked, PutBack, Violation
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.order_key import OrderKey
from tidegate.schemas.progress import PartitionFinished, SlotChanges, SlotProgress, TokenSnapshot
from tidegate.schemas.progress_chain import SlotChain
from tidegate.schemas.progress_chunks import ProgressAssembler

_FOLLOWER = "KeyParked"
"""The reason of a good change whose key is parked."""
_Story = list[Parked | PutBack]


def check(history: History) -> Iterator[Violation]:
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
    """Check the parked changes of one key, in the order in which they stand."""
    first: OrderKey | None = None
    before: OrderKey | None = None
    for change in story:
        now = OrderKey.decode(change.order_key)
        if before is not None and _is_behind(now, before):
            yield Violation("parked behind a later change of its key", change.order_key)
        before = now
        if isinstance(change, PutBack):
            if first is None:
                yield Violation("a key put back that was not parked", change.order_key)
            first = None
            continue
        if change.reason == _FOLLOWER:
            if first is None or _is_behind(now, first):
                yield Violation("parked without a poison change before it", change.order_key)
            continue
        first = first or now
        if change.reason != "MessageTooLarge" and change.order_key not in poison:
            yield Violation(f"parked as {change.reason}, and is no poison", change.order_key)


def _check_what_passed(history: History, redriven: set[bytes]) -> Iterator[Violation]:
    """Look for changes after one of their key that is parked still."""
    firsts: dict[tuple[str, bytes], OrderKey] = {}
    for change in history.parked:
        if change.order_key not in redriven:
            firsts.setdefault((change.topic, change.key), OrderKey.decode(change.order_key))
    for record in history.published:
        first = firsts.get((record.topic, record.key))
        if first is None or record.is_copy:
            continue
        if _is_behind(first, OrderKey.decode(record.order_key)):
            yield Violation("has passed a parked change of its key", record.order_key)


def _is_behind(now: OrderKey, before: OrderKey) -> bool:
    """Whether one change comes before another of its key; those of one instant need not."""
    if now.commit_timestamp_us != before.commit_timestamp_us:
        return now.commit_timestamp_us < before.commit_timestamp_us
    if now.server_transaction_id != before.server_transaction_id:
        return False
    return (now.record_sequence, now.mod_number) < (before.record_sequence, before.mod_number)


def _check_counts(history: History) -> Iterator[Violation]:
    found = Counter(change.token for change in history.parked)
    for entry in history.progress:
        body = entry.record.body
        if isinstance(body, PartitionFinished) and body.parked != found[body.token]:
            text = f"its marker counts {body.parked} parked changes, there are {found[body.token]}"
            yield Violation(text, body.token)
    for token in _open_tokens(history):
        if token.parked != found[token.token]:
            text = f"its slot counts {token.parked} parked changes, there are {found[token.token]}"
            yield Violation(text, token.token)


def _open_tokens(history: History) -> Iterator[TokenSnapshot]:
    """Yield the tokens as the newest chain of each slot has them."""
    chains: dict[int, SlotChain] = {}
    assemblers: dict[int, ProgressAssembler] = defaultdict(ProgressAssembler)
    for entry in history.progress:
        whole = assemblers[entry.slot].add(entry.record.body, offset=entry.offset)
        body = None if whole is None else whole[0]
        if isinstance(body, SlotProgress):
            chains[entry.slot] = SlotChain(body, offset=entry.offset)
        elif isinstance(body, SlotChanges) and entry.slot in chains:
            try:
                chains[entry.slot].add(body)
            except SchemaError:
                continue  # what compaction has left of an older chain
    for chain in chains.values():
        yield from chain.tokens.values()
