"""Changes of a slot add up: they continue a chain, and what they say of all its tokens is true."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.history import History, Violation
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.progress import SlotChanges, SlotProgress, SlotWatermark, SlowestToken
from tidegate.schemas.progress_chain import SlotChain
from tidegate.schemas.progress_chunks import ProgressAssembler


def check(history: History) -> Iterator[Violation]:
    chains: dict[int, SlotChain] = {}
    assemblers: dict[int, ProgressAssembler] = {}
    for entry in history.progress:
        assembler = assemblers.setdefault(entry.slot, ProgressAssembler())
        whole = assembler.add(entry.record.body, offset=entry.offset)
        body = None if whole is None else whole[0]
        chain = chains.get(entry.slot)
        if isinstance(body, SlotProgress):
            chains[entry.slot] = SlotChain(body, offset=entry.offset)
            if chain is not None:
                yield from _regress(chain, chains[entry.slot], entry.slot)
        elif isinstance(body, SlotChanges):
            if chain is None:
                yield Violation(f"slot {entry.slot}: changes before the first snapshot")
                return
            before = chain.watermarks()
            try:
                chain.add(body)
            except SchemaError as error:
                yield Violation(f"slot {entry.slot}, revision {body.revision}: {error}")
                return
            yield from _compare(chain, body, entry.slot)
            fallen = [t for t, us in chain.watermarks().items() if us < before.get(t, us)]
            if fallen:
                yield Violation(f"slot {entry.slot}: watermarks of {fallen} fall")
        elif isinstance(body, SlotWatermark) and chain is not None:
            yield from _compare(chain, body, entry.slot)
            vector = {(one.topic, one.topic_partition): one.offset for one in body.vector}
            if vector != chain.vector:
                yield Violation(f"slot {entry.slot}: minute {body.minute} has another vector")


def _compare(chain: SlotChain, body: SlotChanges | SlotWatermark, slot: int) -> Iterator[Violation]:
    marks = [(us, token) for token, us in chain.watermarks().items()]
    watermark_us, token = min(marks, default=(0, ""))
    slowest = SlowestToken(token, watermark_us) if marks else None
    claimed = (body.revision, body.includes, body.open, body.slowest)
    if claimed != (chain.revision, chain.includes, len(marks), slowest):
        yield Violation(
            f"slot {slot}: revision {body.revision} has {claimed}, slowest is {slowest}"
        )


def _regress(before: SlotChain, now: SlotChain, slot: int) -> Iterator[Violation]:
    """Yield tokens that a new chain puts back; those that are missing have finished."""
    marks = before.watermarks()
    fallen = [token for token, us in now.watermarks().items() if us < marks.get(token, us)]
    if fallen:
        yield Violation(f"slot {slot}: watermarks of {fallen} fall")
