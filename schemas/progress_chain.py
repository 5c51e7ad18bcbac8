"""A slot's snapshot, kept up to date from a `SlotProgress` and the `SlotChanges` that follow it.

Changes count only if they continue the chain: the revision is one more, and the position too.  Any
other changes are the remainder of an older chain after compaction (`docs/protocol.md`, 5.4).
"""

from __future__ import annotations

from dataclasses import replace

from tidegate.schemas.errors import SchemaError
from tidegate.schemas.progress import (
    SlotChanges,
    SlotProgress,
    SlotWatermark,
    TokenMove,
    TokenSnapshot,
    TopicOffset,
)


class SlotChain:
    """One slot's tokens and vector as of the newest added revision."""

    def __init__(self, start: SlotProgress, *, offset: int) -> None:
        """Begin with a complete snapshot, at its offset."""
        self.offset = offset
        """Offset of the snapshot: the chain can be read from here on."""
        self.position = 0
        self.revision = start.revision
        self.minute = start.minute
        self.includes = start.includes
        self.vector = {(o.topic, o.topic_partition): o.offset for o in start.vector}
        self.tokens: dict[str, TokenSnapshot] = {token.token: token for token in start.tokens}
        self.entries = 0
        """Number of tokens named by the changes since the snapshot, with repetitions."""
        self._tokens_by_number = {token.number: token.token for token in start.tokens}

    def is_continued_by(self, changes: SlotChanges | SlotWatermark) -> bool:
        """Whether the changes are the chain's next ones."""
        return changes.revision == self.revision + 1

    def add(self, changes: SlotChanges) -> list[str]:
        """Apply the next changes; return the tokens that they name.

        Raises SchemaError if they do not continue the chain or contradict it.
        """
        if not self.is_continued_by(changes) or changes.position != self.position + 1:
            raise SchemaError(
                "changes of a slot do not continue what was read before them",
                slot=changes.slot,
                revision=changes.revision,
                before=self.revision,
            )
        self.position = changes.position
        self.revision = changes.revision
        self.minute = changes.minute
        self.includes = changes.includes
        self.vector |= {(o.topic, o.topic_partition): o.offset for o in changes.vector}
        named: list[str] = []
        for number in changes.removed:
            token = self._token_of(number, changes)
            del self.tokens[token]
            del self._tokens_by_number[number]
            named.append(token)
        for snapshot in changes.added:
            self.tokens[snapshot.token] = snapshot
            self._tokens_by_number[snapshot.number] = snapshot.token
            named.append(snapshot.token)
        for move in changes.moved:
            token = self._token_of(move.number, changes)
            self.tokens[token] = _moved(self.tokens[token], move)
            named.append(token)
        self.entries += len(named)
        if len(self.tokens) != changes.open:
            raise SchemaError(
                "changes of a slot lead to another number of open tokens than they state",
                slot=changes.slot,
                revision=changes.revision,
            )
        return named

    def watermarks(self) -> dict[str, int]:
        """Return the watermark of each open token."""
        return {token: snapshot.watermark_us for token, snapshot in self.tokens.items()}

    def snapshot(self, slot: int) -> SlotProgress:
        """Return the snapshot as of the newest revision."""
        return SlotProgress(
            slot=slot,
            revision=self.revision,
            minute=self.minute,
            includes=self.includes,
            vector=tuple(
                TopicOffset(*place, offset) for place, offset in sorted(self.vector.items())
            ),
            tokens=tuple(snapshot for _, snapshot in sorted(self.tokens.items())),
        )

    def _token_of(self, number: int, changes: SlotChanges) -> str:
        token = self._tokens_by_number.get(number)
        if token is None:
            raise SchemaError(
                "changes of a slot name a token that is not open",
                slot=changes.slot,
                number=number,
                revision=changes.revision,
            )
        return token


def _moved(token: TokenSnapshot, move: TokenMove) -> TokenSnapshot:
    totals = {total.topic: total for total in (*token.totals, *move.totals)}
    return replace(
        token,
        watermark_us=move.watermark_us,
        boundary=move.boundary,
        totals=tuple(totals[topic] for topic in sorted(totals)),
        filtered=move.filtered,
        parked=move.parked,
    )
