"""Whether the bytes of one call come fast enough to say that its query is not silent.

A message may take long: a link may be slow, or busy with other calls.  A peer that sends a byte now
and then does neither: without a lower bound it would hold its stream partition for good.  Pure: the
times are the caller's.
"""

from __future__ import annotations

RATE_MIN_BYTES_PER_S = 1_024
"""A message that comes at this rate counts as coming.

A link of 4.8 Mbit/s carries 585 messages at once at this rate, and one of a telephone still one; at
less a message of the largest size, 10 MiB, would take longer than three hours.
"""
_BEHIND_OTHERS_S = (2.0, 120.0)
"""How long a call has nothing of its own while others have: from when on it says so, until when.  A
slow link brings one large message after the other; a call that hangs must end some time."""
_PIECE_BYTES = 4_096
"""What ends such a wait.  Busy links bring frames of 16 KiB; less only ends it with its message."""


class ByteProgress:
    """Whether a call is silent: counts the bytes that came since it last said that it is not."""

    def __init__(self) -> None:
        """Wait for nothing."""
        self._came = 0
        """Bytes since the last sign."""
        self._since_s: float | None = None
        """Since when they are waited for."""
        self._piece = 0
        """Bytes since `_behind_since_s`."""
        self._behind_since_s: float | None = None

    def wait(self, now_s: float, *, in_message: bool) -> None:
        """Record that a reader waits for bytes, of a message that has begun or of the next one."""
        if self._behind_since_s is None:
            self._behind_since_s, self._piece = now_s, 0
        if in_message and self._since_s is None:
            self._since_s = now_s

    def add(self, size: int) -> None:
        """Count bytes that came."""
        self._came += size
        self._piece += size
        if self._piece >= _PIECE_BYTES:
            self._behind_since_s = None

    def end_message(self) -> None:
        """Begin again: a message is complete."""
        self._since_s = self._behind_since_s = None
        self._came = 0

    def is_coming(self, now_s: float) -> bool:
        """Whether a message came at the least rate since the last sign; this is the next one."""
        if self._since_s is None or self._came < RATE_MIN_BYTES_PER_S * (now_s - self._since_s):
            return False
        self._since_s, self._came = now_s, 0
        return True

    def is_behind(self, now_s: float) -> bool:
        """Whether it waits for bytes and others of its connection may be the reason."""
        if self._behind_since_s is None:
            return False
        first_s, last_s = _BEHIND_OTHERS_S
        return first_s <= now_s - self._behind_since_s <= last_s
